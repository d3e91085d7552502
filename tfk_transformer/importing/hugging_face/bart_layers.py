"""The names and shapes that the layers of BART and its descendants have in Hugging Face's files,
MarianMT among them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.hugging_face.model_folder import Arrays, Shapes
from tfk_transformer.importing.vocabulary import Vocabulary
from tfk_transformer.models.base import array_problems
from tfk_transformer.pipelines.weights import check_sizes

# The table of both sides, and that of the projection.
SHARED, OUTPUT = "model.shared.weight", "lm_head.weight"
SOURCE, TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
BIAS = "final_logits_bias"
# The attentions of a layer: the family's name, and this project's names of the attention and of its
# residual connection.
ENCODER_PARTS = {"self_attn": ("attention", "attention_residual")}
DECODER_PARTS = {
    "self_attn": ("self_attention", "self_residual"),
    "encoder_attn": ("cross_attention", "cross_residual"),
}
PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}


class Array(NamedTuple):
    """An array of a file, what this project makes of it, and what makes the array of that again."""

    name: str
    shape: tuple[int, ...]
    convert: Callable[[np.ndarray], np.ndarray] = np.asarray
    restore: Callable[[np.ndarray], np.ndarray] = np.asarray


def layers_of(file: Arrays, config: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of all layers in a file, see `layer_arrays`.

    Raises:
        ValueError: if the configuration has more layers or larger ones than the file, before they
            are counted out.
    """
    check_sizes(config, file.shapes, file.path)
    return layer_arrays(config)


def layer_arrays(config: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of all layers by the names that they have in a `Transformer`."""
    stacks = (
        ("encoder", config.encoder_layers, ENCODER_PARTS),
        ("decoder", config.decoder_layers, DECODER_PARTS),
    )
    return {
        f"{stack}/layer_{i}/{name}": array._replace(name=f"model.{stack}.layers.{i}.{array.name}")
        for stack, count, parts in stacks
        for i in range(count)
        for name, array in _layer(config, parts)
    }


def _layer(
    config: TransformerConfig, parts: dict[str, tuple[str, str]]
) -> Iterator[tuple[str, Array]]:
    for theirs, (attention, residual) in parts.items():
        yield from _attention(config, attention, theirs)
        yield from norm_arrays(config, f"{residual}/norm", f"{theirs}_layer_norm")
    yield from _dense("feed_forward/inner", "fc1", config.model_dim, config.ff_width)
    yield from _dense("feed_forward/outer", "fc2", config.ff_width, config.model_dim)
    yield from norm_arrays(config, "ff_residual/norm", "final_layer_norm")


def _attention(config: TransformerConfig, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
    width = config.model_dim
    heads = (config.num_heads, config.query_width)  # H, K; H * K = D

    def split(weight: np.ndarray) -> np.ndarray:  # (H*K, D) -> (H, D, K)
        return weight.reshape(*heads, width).transpose(0, 2, 1)

    def joined(weight: np.ndarray) -> np.ndarray:  # (H, D, K) -> (H*K, D)
        return weight.transpose(0, 2, 1).reshape(width, width)

    for role, name in PROJECTIONS.items():
        yield f"{ours}/{role}", Array(f"{theirs}.{name}.weight", (width, width), split, joined)
        # (H*K,) -> (H, 1, K) and back
        yield (
            f"{ours}/{role}_bias",
            Array(
                f"{theirs}.{name}.bias",
                (width,),
                lambda b: b.reshape(heads[0], 1, heads[1]),
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
    """Yield the arrays of a layer norm by the names that they have in a `Transformer`."""
    yield f"{ours}/gamma", Array(f"{theirs}.weight", (config.model_dim,))
    yield f"{ours}/beta", Array(f"{theirs}.bias", (config.model_dim,))


def read_arrays(
    file: Arrays,
    wanted: Mapping[str, Array],
    others: Iterable[str],
    vocabulary: Vocabulary,
    rows: int | None,
) -> dict[str, np.ndarray]:
    """Return all weights of a model, read from a file.

    Args:
        file: the file.
        wanted: the model's arrays, without the output bias, by the names that they have in a
            `Transformer`.
        others: names that the file may have as well, of any shape.
        vocabulary: that of the target.
        rows: the size of the output bias, which a file may leave out if it is 0. None: the family
            has none.

    Raises:
        ValueError: if the arrays of the file are not those of the configuration; the message names
            all of them.
    """
    biased = rows is not None and BIAS in file.shapes
    optional: Shapes = {BIAS: (1, rows)} if rows is not None and biased else {}
    _check_shapes(
        file, {**{array.name: array.shape for array in wanted.values()}, **optional}, others
    )
    found = {name: array.convert(file.read(array.name)) for name, array in wanted.items()}
    return {
        **found,
        "output/bias": vocabulary.bias(
            file.read(BIAS)[0] if biased else np.zeros(vocabulary.rows.max() + 1, "float32")
        ),
    }


def _check_shapes(file: Arrays, wanted: Shapes, others: Iterable[str]) -> None:
    ignored = set(others) - set(wanted)
    there = {name: shape for name, shape in file.shapes.items() if name not in ignored}
    if problems := array_problems(wanted, there, most=20):
        raise ValueError(
            f"folder: expected the arrays of its config.json in {file.path}, got {problems}"
        )
