"""The options of a `TransformerSpec` of CTranslate2, from its arrays and attributes.

The meaning of a missing array or attribute is that of CTranslate2's src/layers/transformer.cc and
src/layers/common.cc.
"""

import itertools
import math
import re
from typing import Any, Literal, NamedTuple

import numpy as np

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile, load_error
from tfk_transformer.importing.ctranslate2_folder.layers import (
    SCALE_OUTPUTS,
    STACKS,
    count_layers,
    table_names,
)
from tfk_transformer.importing.ctranslate2_folder.positions import position_options
from tfk_transformer.importing.hugging_face.model_folder import Arrays, Shapes

# Other specifications: the name of the architecture.
OTHER_SPECS = {
    "TransformerDecoderSpec": "a decoder-only language model",
    "TransformerEncoderSpec": "an encoder without a decoder",
    "WhisperSpec": "Whisper, which reads audio",
    "Wav2Vec2Spec": "wav2vec 2.0, which reads audio",
    "Wav2Vec2BertSpec": "wav2vec 2.0 BERT, which reads audio",
}
HEADS_OF_SPEC = {"TransformerBig": 16}  # of the first revisions; the others have 8 heads
SPECS = ("TransformerSpec", "TransformerBase", *HEADS_OF_SPEC)
REVISIONS = range(2, 8)
# Layers that this library lacks, by a pattern of the names of their arrays and attributes.
UNSUPPORTED = {
    r"/relative_(asymmetric_)?position_": "vectors of relative positions",
    r"/rotary_": "rotary positions",
    r"/num_heads_kv$": "fewer key heads than query heads",
    r"/sliding_window$": "attention in a sliding window",
    r"/[qkv]_norm/": "norms of queries, keys or values",
    r"/project_(in|out)/": "projections between embeddings and layers",
    r"/(memory_kv/|merged_encoder_attention$)": "one attention to the source and the target",
    r"/layer_norm_use_residual$": "RMS norms",
    r"/(shared|input|post_\w+|pre_\w+|external_\w+)_layer_norm/": "other norms in a layer",
    r"/embeddings_1/": "several features of a source token",
    r"/weight_zero$": "AWQ quantization",
}
# Attributes that change the model unless they have these values, and the layers that they select.
NEUTRAL = {
    "encoder/multi_query_attention": (0.0, "one key head for all query heads"),
    "decoder/alibi": (0.0, "attention with linear biases (ALiBi)"),
    "decoder/final_logit_softcapping": (0.0, "capped logits"),
}
ACTIVATIONS = ("relu", "gelu_tanh", "silu", "gelu", "gelu_sigmoid", "tanh", "sigmoid")
SUPPORTED_ACTIVATIONS = ACTIVATIONS[:-2]
DEFAULT_EPSILON = {"layer": 1e-5, "rms": 1e-6}


class FolderOptions(NamedTuple):
    """The options of a model that its arrays and attributes determine."""

    options: dict[str, Any]  # of a `TransformerConfig`
    source_rows: int
    target_rows: int
    starts_with_zeros: bool  # whether the first token of the decoder has an embedding of zeros
    stored_positions: bool  # whether the file has tables of positions


def check_supported(file: BinaryFile) -> None:
    """Refuse other architectures than a Transformer of this library's layers.

    Raises:
        ValueError: naming everything that is not supported.
    """
    if file.spec not in SPECS or file.revision not in REVISIONS:
        other = OTHER_SPECS.get(file.spec, f"the specification '{shorten(file.spec)}'")
        got = other if file.spec not in SPECS else f"revision {file.revision}"
        raise load_error(
            file.path,
            f"expected an encoder and a decoder (TransformerSpec, revision {REVISIONS[0]} to "
            f"{REVISIONS[-1]}), got {got}",
        )
    problems = [
        f"{layers} ('{shorten(name)}')"
        for pattern, layers in UNSUPPORTED.items()
        for name in itertools.islice(filter(re.compile(pattern).search, file.variables), 1)
    ]
    problems += [
        f"{layers} ('{name}' {value:g})"
        for name, (neutral, layers) in NEUTRAL.items()
        if (value := file.number(name, neutral)) != neutral
    ]
    if file.number(f"decoder/{SCALE_OUTPUTS}", 1) != 1 and "decoder/layer_norm/gamma" not in (
        file.variables
    ):
        problems.append(f"scaled decoder outputs without a norm ('decoder/{SCALE_OUTPUTS}')")
    problems += [
        f"scaled layers ('{name}')"
        for name in file.variables
        if name.endswith("/layer_scalar") and file.number(name, 1) != 1
    ][:1]
    if problems:
        raise load_error(
            file.path, f"expected layers that this library has, got {'; '.join(problems)}"
        )


def read_options(file: BinaryFile, arrays: Arrays, epsilon: float | None) -> FolderOptions:
    """Return the options of a model.

    Args:
        file: a file that `check_supported` accepts.
        arrays: its arrays.
        epsilon: the `layer_norm_epsilon` of config.json.

    Raises:
        ValueError: if encoder and decoder have unlike options, or arrays are missing.
    """
    source_table, target_table, output = table_names(file)
    names = (source_table, target_table, output, "encoder/layer_0/ffn/linear_0/weight")
    if missing := [name for name in names if len(arrays.shapes.get(name, ())) != 2]:
        raise load_error(file.path, f"expected matrices as {', '.join(missing)}")
    source_rows, width = arrays.shapes[source_table]
    target_rows = arrays.shapes[target_table][0]
    norm_type = _norm_type(file)
    options = {
        "model_dim": width,
        "norm_type": norm_type,
        "norm_epsilon": DEFAULT_EPSILON[norm_type] if epsilon is None else epsilon,
        **_feed_forward(arrays.shapes),
        "attention_bias": _attention_bias(arrays.shapes),
        "output_bias": True,
        **{f"{stack}_layers": count_layers(arrays.shapes, stack) for stack in STACKS},
        **_equal_options(file, width),
    }
    options |= {
        f"{stack}_final_norm": None if norm == (options["norm"] == "pre") else norm
        for stack in STACKS
        for norm in [f"{stack}/layer_norm/gamma" in arrays.shapes]
    }
    options |= _head_widths(arrays.shapes, width, options["num_heads"])
    options |= position_options(file, arrays, width)
    zeros = file.number("decoder/start_from_zero_embedding", 0) != 0
    stored = "encoder/position_encodings/encodings" in arrays.shapes
    return FolderOptions(options, source_rows, target_rows, zeros, stored)


def tied_tables(
    file: BinaryFile, arrays: Arrays, same_tokens: bool
) -> Literal["none", "inputs", "target", "all"]:
    """Return the value of `tie_embeddings`: which tables are equal.

    Args:
        file: the file.
        arrays: its arrays.
        same_tokens: whether source and target have the same tokens.
    """
    source, target, output = table_names(file)

    def same(first: str, second: str) -> bool:
        return file.variables[first] == file.variables[second] or (
            arrays.shapes[first] == arrays.shapes[second]
            and np.array_equal(arrays.read(first), arrays.read(second))
        )

    shares_source = same_tokens and same(source, target)
    if same(target, output):
        return "all" if shares_source else "target"
    return "inputs" if shares_source else "none"


def _norm_type(file: BinaryFile) -> Literal["layer", "rms"]:
    """Return the type of all norms: only those of type "layer" have a beta.

    Raises:
        ValueError: if the file has norms of both types.
    """
    norms = [name.removesuffix("gamma") for name in file.variables if name.endswith("norm/gamma")]
    without = [name for name in norms if f"{name}beta" not in file.variables]
    if without and len(without) < len(norms):
        raise load_error(
            file.path, f"expected one type of norms, got '{without[0]}gamma' without a beta"
        )
    return "rms" if without else "layer"


def _feed_forward(shapes: Shapes) -> dict[str, Any]:
    """Return the options of feed-forward blocks."""
    widths = [shapes.get(f"{stack}/layer_0/ffn/linear_0/weight", (0,))[0] for stack in STACKS]
    return {
        "ff_dim": widths[0],
        "decoder_ff_dim": widths[1] if widths[1] not in (0, widths[0]) else None,
        "ff_gated": "encoder/layer_0/ffn/linear_0_noact/weight" in shapes,
        "ff_bias": any(re.search(r"/ffn/linear_\w+/bias$", name) for name in shapes),
    }


def _attention_bias(shapes: Shapes) -> tuple[str, ...]:
    """Return the roles with a bias. Only the product of several roles can have one."""
    biases = [name for name in shapes if re.search(r"attention/linear_\d/bias$", name)]
    outputs = [name for name in biases if re.search(r"self_attention/linear_1|linear_2", name)]
    inputs = ("query", "key", "value") if len(outputs) < len(biases) else ()
    return (*inputs, *["output"] * bool(outputs))


def _equal_options(file: BinaryFile, width: int) -> dict[str, Any]:
    """Return the options that encoder and decoder must have in common.

    Raises:
        ValueError: naming each that differs or is not supported.
    """
    options: dict[str, Any] = {}
    problems = []
    for name, read in (
        ("num_heads", lambda stack: int(_attribute(file, stack, "num_heads", _heads(file)))),
        ("norm", lambda stack: "pre" if _attribute(file, stack, "pre_norm", 1) else "post"),
        ("ff_activation", lambda stack: _activation(_attribute(file, stack, "activation", 0))),
        ("scale_embeddings", lambda stack: _scale(file, stack, width)),
        ("embedding_norm", lambda stack: f"{stack}/layernorm_embedding/gamma" in file.variables),
    ):
        values = [read(stack) for stack in STACKS]
        options[name] = values[0]
        if values[0] != values[1]:
            problems.append(f"{name} {values[0]} in the encoder and {values[1]} in the decoder")
    if options["num_heads"] < 1:
        problems.append(f"num_heads {options['num_heads']}")
    if options["ff_activation"] not in SUPPORTED_ACTIVATIONS:
        problems.append(f"the activation {options['ff_activation']}")
    if not isinstance(options["scale_embeddings"], bool):
        problems.append(f"embeddings scaled by {options['scale_embeddings']:g}")
    if problems:
        raise load_error(
            file.path, f"expected options that this library has, got {'; '.join(problems)}"
        )
    return options


def _heads(file: BinaryFile) -> int:
    return HEADS_OF_SPEC.get(file.spec, 8)


def _attribute(file: BinaryFile, stack: str, name: str, default: float) -> float:
    """Return an attribute of a stack, which in early revisions is one of the model."""
    return file.number(f"{stack}/{name}", file.number(name, default))


def _activation(number: float) -> str:
    return ACTIVATIONS[int(number)] if number in range(len(ACTIVATIONS)) else f"{number:g}"


def _scale(file: BinaryFile, stack: str, width: int) -> bool | float:
    """Return whether embeddings are multiplied by sqrt(width), or another factor."""
    names = (f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth")
    name = next(filter(file.variables.__contains__, names), names[0])
    factor = file.number(name, 1)
    if name not in file.variables or file.variables[name].dtype == "int8":
        return factor != 0
    if math.isclose(factor, width**0.5, rel_tol=1e-3):
        return True
    return False if factor == 1 else factor


def _head_widths(shapes: Shapes, width: int, heads: int) -> dict[str, int]:
    """Return the widths of heads, if they are not model_dim / num_heads."""
    rows = shapes.get("encoder/layer_0/self_attention/linear_0/weight", (0,))[0]
    head = rows // (3 * heads)
    return {} if head * heads == width else {"key_dim": max(1, head), "value_dim": max(1, head)}
