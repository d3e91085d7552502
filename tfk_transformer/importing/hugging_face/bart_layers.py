"""Names and shapes of the layers of BART and its descendants in Hugging Face's files."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.hugging_face.model_folder import Arrays, Shapes
from tfk_transformer.importing.vocabulary import Vocabulary
from tfk_transformer.models.configured_model import array_problems
from tfk_transformer.pipelines.weights import check_sizes

SHARED_TABLE = "model.shared.weight"  # of both sides
SOURCE_TABLE = "model.encoder.embed_tokens.weight"
TARGET_TABLE = "model.decoder.embed_tokens.weight"
OUTPUT_TABLE = "lm_head.weight"
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
LOGITS_BIAS = "final_logits_bias"
OUTPUT_BIAS = "output/bias"  # in a `Transformer`
# The attention sublayers of a layer, by the family's name: this project's names of the attention
# and of the residual connection.
BART_PARTS = {
    "encoder": {"self_attn": ("attention", "attention_residual")},
    "decoder": {
        "self_attn": ("self_attention", "self_residual"),
        "encoder_attn": ("cross_attention", "cross_residual"),
    },
}
PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}


class Array(NamedTuple):
    """An array in a file of weights, and its conversion to this project's layout and back."""

    name: str
    shape: tuple[int, ...]
    convert: Callable[[np.ndarray], np.ndarray] = np.asarray  # from the file's layout
    restore: Callable[[np.ndarray], np.ndarray] = np.asarray  # to the file's layout


def layers_of(file: Arrays, config: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of all layers in a file; see `layer_arrays`.

    Raises:
        ValueError: if the configuration has more or larger layers than the file. This is checked
            before the arrays are listed.
    """
    check_sizes(config, file.shapes, file.path)
    return layer_arrays(config)


def layer_arrays(config: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of all layers by their names in a `Transformer`."""
    encoder = (_layer(config, "encoder", i) for i in range(config.encoder_layers))
    decoder = (_layer(config, "decoder", i) for i in range(config.decoder_layers))
    return dict(itertools.chain(*encoder, *decoder))


def _layer(config: TransformerConfig, stack: str, index: int) -> Iterator[tuple[str, Array]]:
    ours = f"{stack}/layer_{index}"
    theirs = f"model.{stack}.layers.{index}"
    for name, (attention, residual) in BART_PARTS[stack].items():
        yield from _attention(config, f"{ours}/{attention}", f"{theirs}.{name}")
        yield from norm_arrays(config, f"{ours}/{residual}/norm", f"{theirs}.{name}_layer_norm")
    dense = f"{ours}/feed_forward"
    options = config if stack == "encoder" else config.decoder_options()
    yield from _dense(f"{dense}/inner", f"{theirs}.fc1", config.model_dim, options.ff_width)
    yield from _dense(f"{dense}/outer", f"{theirs}.fc2", options.ff_width, config.model_dim)
    yield from norm_arrays(config, f"{ours}/ff_residual/norm", f"{theirs}.final_layer_norm")


def _attention(config: TransformerConfig, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
    width = config.model_dim  # D = H * K
    heads = (config.num_heads, config.query_width)  # H, K

    def split_heads(weight: np.ndarray) -> np.ndarray:  # (H*K, D) -> (H, D, K)
        return weight.reshape(*heads, width).transpose(0, 2, 1)

    def combine_heads(weight: np.ndarray) -> np.ndarray:  # (H, D, K) -> (H*K, D)
        return weight.transpose(0, 2, 1).reshape(width, width)

    for role, name in PROJECTIONS.items():
        yield (
            f"{ours}/{role}",
            Array(f"{theirs}.{name}.weight", (width, width), split_heads, combine_heads),
        )
        yield (
            f"{ours}/{role}_bias",
            # (H*K,) -> (H, 1, K) and back
            Array(
                f"{theirs}.{name}.bias",
                (width,),
                lambda bias: bias.reshape(heads[0], 1, heads[1]),
                np.ravel,
            ),
        )
    yield (
        f"{ours}/output",
        Array(f"{theirs}.out_proj.weight", (width, width), np.transpose, np.transpose),
    )
    yield f"{ours}/output_bias", Array(f"{theirs}.out_proj.bias", (width,))


def _dense(ours: str, theirs: str, inputs: int, outputs: int) -> Iterator[tuple[str, Array]]:
    yield f"{ours}/kernel", Array(f"{theirs}.weight", (outputs, inputs), np.transpose, np.transpose)
    yield f"{ours}/bias", Array(f"{theirs}.bias", (outputs,))


def norm_arrays(config: TransformerConfig, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of a layer norm by their names in a `Transformer`."""
    yield f"{ours}/gamma", Array(f"{theirs}.weight", (config.model_dim,))
    yield f"{ours}/beta", Array(f"{theirs}.bias", (config.model_dim,))


def restore_arrays(
    arrays: Mapping[str, Array], weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return weights by the family's names, in the layout of the family's files.

    Args:
        arrays: the arrays of the files by their names in a `Transformer`.
        weights: the weights of a `Transformer` by name. A bias that is missing becomes zeros.
    """
    return {
        array.name: (
            array.restore(weights[name]) if name in weights else np.zeros(array.shape, "float32")
        )
        for name, array in arrays.items()
    }


def check_sinusoids(file: Arrays, names: Iterable[str], table: np.ndarray, family: str) -> None:
    """Refuse a file with other position tables than `table` (positions, D).

    A file may omit position tables.

    Raises:
        ValueError: naming the first position table that differs.
    """
    for name in names:
        if name in file.shapes and not (
            file.shapes[name] == table.shape and np.allclose(file.read(name), table, atol=1e-3)
        ):
            raise ValueError(
                f"folder: expected the sinusoids of {family} as '{name}' of {file.path}, got "
                "other values."
            )


def read_arrays(
    file: Arrays,
    arrays: Mapping[str, Array],
    optional: Iterable[str],
    vocabulary: Vocabulary,
    bias: Array | None = None,
    expectation: str = "folder: expected the arrays of its config.json",
) -> dict[str, np.ndarray]:
    """Return all weights of a model, read from a file.

    Args:
        file: the file.
        arrays: the model's arrays, without the output bias, by their names in a `Transformer`.
        optional: names of further arrays, of any shape, that the file may have.
        vocabulary: the vocabulary of the target.
        bias: the output bias by the family's rows, which a file may omit if it is 0. None: the
            family has no output bias.
        expectation: the start of the error message.

    Raises:
        ValueError: if the arrays of the file do not match the configuration, where the message
            names all problems, or have numbers that are not finite.
    """
    if bias is not None and bias.name in file.shapes:
        arrays = {**arrays, OUTPUT_BIAS: bias}
    expected: Shapes = {array.name: array.shape for array in arrays.values()}
    ignored = set(optional) - set(expected)
    shapes = {name: shape for name, shape in file.shapes.items() if name not in ignored}
    if problems := array_problems(expected, shapes, most=20):
        raise ValueError(f"{expectation} in {file.path}, got {problems}")
    weights = {}
    for name, array in arrays.items():
        values = file.read(array.name)
        if not np.isfinite(values).all():
            raise ValueError(
                f"{expectation} to be finite in {file.path}, got {np.sum(~np.isfinite(values)):,} "
                f"NaN or infinite numbers in '{array.name}'; save the model again, in float32."
            )
        weights[name] = array.convert(values)
    zeros = np.zeros(vocabulary.rows.max() + 1, "float32")
    return {**weights, OUTPUT_BIAS: vocabulary.bias(weights.get(OUTPUT_BIAS, zeros))}
