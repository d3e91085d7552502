"""The weights of a `Transformer`, by the names and in the layouts of other libraries.

A family states the names of its arrays, in the order in which errors list them. The conversions of
layers and tables are those of this module.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.arrays import Arrays, Shapes
from tfk_transformer.importing.vocabulary import Vocabulary
from tfk_transformer.models.configured_model import array_problems

STACKS = ("encoder", "decoder")
# The attention sublayers of a layer in a `Transformer`: the attention and the residual connection.
SUBLAYERS = {
    "encoder": (("attention", "attention_residual"),),
    "decoder": (("self_attention", "self_residual"), ("cross_attention", "cross_residual")),
}
NORM = ("gamma", "beta")
OUTPUT_BIAS = "output/bias"


class Array(NamedTuple):
    """An array in a file of weights, and its conversion to this project's layout and back."""

    name: str
    shape: tuple[int, ...]
    convert: Callable[[np.ndarray], np.ndarray] = np.asarray  # from the file's layout
    restore: Callable[[np.ndarray], np.ndarray] = np.asarray  # to the file's layout

    def prepared(self, prepare: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Return the array with a change of its values before the conversion."""
        return self._replace(convert=lambda values: self.convert(prepare(values)))


def layer_names(
    stack: str,
    self_attention: Mapping[str, str],
    cross_attention: Mapping[str, str],
    others: Mapping[str, str],
) -> dict[str, str]:
    """Return the names of a layer's arrays by the names of the weights in a layer.

    The names of an attention are those of its weights, such as "query" and "query_bias", and of its
    norm, "gamma" and "beta". The encoder has no cross-attention.
    """
    attentions = zip(SUBLAYERS[stack], (self_attention, cross_attention), strict=False)
    names = {
        f"{residual}/norm/{weight}" if weight in NORM else f"{attention}/{weight}": name
        for (attention, residual), weights in attentions
        for weight, name in weights.items()
    }
    return {**names, **others}


def layer_arrays(
    config: TransformerConfig, stack: str, index: int, prefix: str, names: Mapping[str, str]
) -> dict[str, Array]:
    """Return the arrays of a layer by their names in a `Transformer`.

    The names, of `layer_names`, follow a prefix. The rows of weights that have one name follow each
    other in one array.
    """
    groups: dict[str, list[str]] = {}
    for weight, name in names.items():
        groups.setdefault(name, []).append(weight)
    arrays = {}
    for weight, name in names.items():
        array = _layer_array(config, stack, weight, prefix + name)
        if (count := len(groups[name])) > 1:
            size = array.shape[0]
            first = size * groups[name].index(weight)
            array = array.prepared(operator.itemgetter(slice(first, first + size)))
            array = array._replace(shape=(count * size, *array.shape[1:]))
        arrays[f"{stack}/layer_{index}/{weight}"] = array
    return arrays


def _layer_array(config: TransformerConfig, stack: str, weight: str, name: str) -> Array:
    """Return an array of a layer, in the layout of PyTorch: (outputs, inputs)."""
    width = config.model_dim  # D
    heads = (config.num_heads, config.query_width)  # H, K
    joined = math.prod(heads)
    *_, part, role = weight.split("/")
    if role in ("kernel", "bias"):
        inner = (config if stack == "encoder" else config.decoder_options()).ff_width
        shape = (width, inner) if part == "outer" else (inner, width)
        if role == "bias":
            return Array(name, shape[:1])
        return Array(name, shape, np.transpose, np.transpose)
    if role == "output":
        return Array(name, (width, joined), np.transpose, np.transpose)
    if role in ("output_bias", *NORM):
        return Array(name, (width,))
    if role.endswith("_bias"):
        # (H*K,) -> (H, 1, K) and back
        return Array(name, (joined,), lambda bias: bias.reshape(heads[0], 1, heads[1]), np.ravel)
    return Array(
        name,
        (joined, width),
        lambda kernel: kernel.reshape(*heads, width).transpose(0, 2, 1),  # (H*K, D) -> (H, D, K)
        lambda kernel: kernel.transpose(0, 2, 1).reshape(joined, width),  # (H, D, K) -> (H*K, D)
    )


def norm_arrays(config: TransformerConfig, ours: str, *names: str) -> dict[str, Array]:
    """Return the arrays of a norm, of which one by the root mean square has only the first."""
    return {
        f"{ours}/{weight}": Array(name, (config.model_dim,))
        for weight, name in zip(NORM, names, strict=False)
    }


def table_arrays(
    config: TransformerConfig,
    names: Sequence[str],
    rows: Sequence[int],
    source: Vocabulary,
    target: Vocabulary,
) -> dict[str, Array]:
    """Return the tables that a model does not share, by their names in a `Transformer`.

    The names are those of the embeddings of source and target, and of the output projection; the
    numbers of rows those of source and target.
    """
    source_shape, target_shape = ((count, config.model_dim) for count in rows)
    arrays = {"source_embedding/embeddings": Array(names[0], source_shape, source.take)}
    if not config.shares_source:
        arrays["target_embedding/embeddings"] = Array(names[1], target_shape, target.take)
    if not config.ties_output:
        arrays["output/kernel"] = Array(names[2], target_shape, lambda rows: target.take(rows).T)
    return arrays


def read_arrays(
    file: Arrays,
    arrays: Mapping[str, Array],
    optional: Iterable[str],
    vocabulary: Vocabulary,
    bias: Array | None = None,
    expectation: str = "folder: expected the arrays of its config.json",
) -> dict[str, np.ndarray]:
    """Return all weights of a model, read from a file.

    The arrays, by their names in a `Transformer`, do not include the output bias. A file may omit
    it if it is 0, and have further arrays of the optional names. The vocabulary is the target's.

    Raises:
        ValueError: if the arrays of the file do not match the configuration, where the message
            names all problems after the expectation, or have numbers that are not finite.
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
    no_bias = np.zeros(1, "float32")
    return {**weights, OUTPUT_BIAS: vocabulary.bias(weights.get(OUTPUT_BIAS, no_bias))}
