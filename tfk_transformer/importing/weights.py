"""The weights of a `Transformer`, by the names and in the layouts of other libraries."""

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


def layer_arrays(
    config: TransformerConfig,
    stack: str,
    index: int,
    prefix: str,
    attentions: Sequence[Mapping[str, str]],
    others: Mapping[str, str],
) -> dict[str, Array]:
    """Return the arrays of a layer by their names in a `Transformer`.

    The names of the self-attention and of the cross-attention, which the encoder lacks, are by
    their weights, such as "query" and "query_bias", and their norms', "gamma" and "beta". The other
    names are by their names in a layer. Weights that have one name follow each other in the rows of
    one array.
    """
    names = {
        f"{residual}/norm/{weight}" if weight in NORM else f"{attention}/{weight}": name
        for (attention, residual), weights in zip(SUBLAYERS[stack], attentions, strict=False)
        for weight, name in weights.items()
    }
    names |= others
    arrays = {}
    for weight, name in names.items():
        array = _layer_array(config, stack, weight, prefix + name)
        group = [other for other, shared in names.items() if shared == name]
        if len(group) > 1:
            size = array.shape[0]
            first = size * group.index(weight)
            array = array.prepared(operator.itemgetter(slice(first, first + size)))
            array = array._replace(shape=(len(group) * size, *array.shape[1:]))
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


def restore_arrays(
    arrays: Mapping[str, Array], weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the arrays of a file from weights, of which missing biases become zeros."""
    names: dict[str, list[str]] = {}  # of the weights in each array
    for name, array in arrays.items():
        names.setdefault(array.name, []).append(name)
    restored = {}
    for theirs, group in names.items():
        zeros = np.zeros(arrays[group[0]].shape, "float32")[:: len(group)]
        rows = [arrays[n].restore(weights[n]) if n in weights else zeros for n in group]
        restored[theirs] = np.ascontiguousarray(np.concatenate(rows))
    return restored


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

    The names are those of the embeddings of source and target, and of the output projection.
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
    """Return all weights of a model, read from a file; the vocabulary is the target's.

    The arrays do not include the output bias, which a file may omit if it is 0. It may have arrays
    of the optional names. Errors begin with the expectation, and name all arrays that do not fit.
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
