"""The options of a `TransformerSpec` of CTranslate2, from its arrays and attributes.

The meaning of a missing one is that of CTranslate2's src/layers/transformer.cc and common.cc.
"""

import itertools
import math
import re
from typing import Any, Literal

import numpy as np

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile
from tfk_transformer.importing.ctranslate2_folder.weights import (
    RELATIVE_BIAS,
    SCALE_OUTPUTS,
    STORED_POSITIONS,
    count_layers,
    table_names,
)
from tfk_transformer.importing.weights import STACKS
from tfk_transformer.layers.positions import SINUSOIDS, position_table
from tfk_transformer.pipelines.weights import MAX_POSITION_NUMBERS

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
MAX_INPUT_LENGTH = 1024  # `Translator.translate_batch` cuts longer sources
# CTranslate2 computes as many positions as a text has. The first one has the number 1.
COMPUTED_POSITIONS = {"positions": "sinusoidal_halves", "position_offset": 1}
# Offsets of fairseq's sinusoids, of which the first row belongs to padding, and of most others.
POSITION_OFFSETS = (0, 1, 2)
POSITION_TOLERANCE = 1e-3  # of sinusoids in float16, or computed in float32 for far positions
MAX_DISTANCE = "self_attention/relative_attention_max_distance"


def check_supported(file: BinaryFile) -> None:
    """Refuse other architectures than a Transformer of this library's layers."""
    if file.spec not in SPECS or file.revision not in REVISIONS:
        other = OTHER_SPECS.get(file.spec, f"the specification '{shorten(file.spec)}'")
        got = other if file.spec not in SPECS else f"revision {file.revision}"
        file.refuse(
            f"expected an encoder and a decoder (TransformerSpec, revision {REVISIONS[0]} to "
            f"{REVISIONS[-1]}), got {got}"
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
    scales_outputs = file.number(f"decoder/{SCALE_OUTPUTS}", 1) != 1
    if scales_outputs and "decoder/layer_norm/gamma" not in file.variables:
        problems.append(f"scaled decoder outputs without a norm ('decoder/{SCALE_OUTPUTS}')")
    problems += [
        f"scaled layers ('{name}')"
        for name in file.variables
        if name.endswith("/layer_scalar") and file.number(name, 1) != 1
    ][:1]
    if problems:
        file.refuse(f"expected layers that this library has, got {'; '.join(problems)}")


def read_options(file: BinaryFile, epsilon: float | None) -> dict[str, Any]:
    """Return the options of a `TransformerConfig` that the arrays and attributes of a file state.

    `epsilon` is the `layer_norm_epsilon` of config.json.
    """
    shapes = file.shapes
    names = (*table_names(file), "encoder/layer_0/ffn/linear_0/weight")
    if missing := [name for name in names if len(shapes.get(name, ())) != 2]:
        file.refuse(f"expected matrices as {', '.join(missing)}")
    width = shapes[names[0]][1]
    norm_type = _norm_type(file)
    widths = [shapes.get(f"{stack}/layer_0/ffn/linear_0/weight", (0,))[0] for stack in STACKS]
    biases = [name for name in shapes if re.search(r"attention/linear_\d/bias$", name)]
    outputs = [name for name in biases if re.search(r"self_attention/linear_1|linear_2", name)]
    # Only the product of several roles can have a bias.
    inputs = ("query", "key", "value") if len(outputs) < len(biases) else ()
    options = {
        "model_dim": width,
        "norm_type": norm_type,
        "norm_epsilon": DEFAULT_EPSILON[norm_type] if epsilon is None else epsilon,
        "ff_dim": widths[0],
        "decoder_ff_dim": widths[1] if widths[1] not in (0, widths[0]) else None,
        "ff_gated": "encoder/layer_0/ffn/linear_0_noact/weight" in shapes,
        "ff_bias": any(re.search(r"/ffn/linear_\w+/bias$", name) for name in shapes),
        "attention_bias": (*inputs, *["output"] * bool(outputs)),
        "output_bias": True,
        **{f"{stack}_layers": count_layers(shapes, stack) for stack in STACKS},
        **_equal_options(file, width),
    }
    options |= {
        f"{stack}_final_norm": None if norm == (options["norm"] == "pre") else norm
        for stack in STACKS
        for norm in [f"{stack}/layer_norm/gamma" in shapes]
    }
    # The widths of heads, if they are not model_dim / num_heads.
    heads = options["num_heads"]
    head = shapes.get("encoder/layer_0/self_attention/linear_0/weight", (0,))[0] // (3 * heads)
    if head * heads != width:
        options |= {"key_dim": max(1, head), "value_dim": max(1, head)}
    return options | _position_options(file, width)


def tied_tables(file: BinaryFile, same_tokens: bool) -> Literal["none", "inputs", "target", "all"]:
    """Return the value of `tie_embeddings`; tables of other tokens are not shared."""
    source, target, output = table_names(file)

    def same(first: str, second: str) -> bool:
        return file.variables[first] == file.variables[second] or (
            file.shapes[first] == file.shapes[second]
            and np.array_equal(file.read(first), file.read(second))
        )

    shares_source = same_tokens and same(source, target)
    if same(target, output):
        return "all" if shares_source else "target"
    return "inputs" if shares_source else "none"


def _norm_type(file: BinaryFile) -> Literal["layer", "rms"]:
    """Return the type of all norms: only those of type "layer" have a beta."""
    norms = [name.removesuffix("gamma") for name in file.variables if name.endswith("norm/gamma")]
    without = [name for name in norms if f"{name}beta" not in file.variables]
    if without and len(without) < len(norms):
        file.refuse(f"expected one type of norms, got '{without[0]}gamma' without a beta")
    return "rms" if without else "layer"


def _equal_options(file: BinaryFile, width: int) -> dict[str, Any]:
    """Return the options that encoder and decoder must have in common."""
    heads = HEADS_OF_SPEC.get(file.spec, 8)
    by_stack: list[dict[str, Any]] = [
        {
            "num_heads": int(_attribute(file, stack, "num_heads", heads)),
            "norm": "pre" if _attribute(file, stack, "pre_norm", 1) else "post",
            "ff_activation": _activation(_attribute(file, stack, "activation", 0)),
            "scale_embeddings": _scale(file, stack, width),
            "embedding_norm": f"{stack}/layernorm_embedding/gamma" in file.variables,
        }
        for stack in STACKS
    ]
    options, decoder_options = by_stack
    problems = [
        f"{name} {value} in the encoder and {decoder_options[name]} in the decoder"
        for name, value in options.items()
        if value != decoder_options[name]
    ]
    if options["num_heads"] < 1:
        problems.append(f"num_heads {options['num_heads']}")
    if options["ff_activation"] not in SUPPORTED_ACTIVATIONS:
        problems.append(f"the activation {options['ff_activation']}")
    if not isinstance(options["scale_embeddings"], bool):
        problems.append(f"embeddings scaled by {options['scale_embeddings']:g}")
    if problems:
        file.refuse(f"expected options that this library has, got {'; '.join(problems)}")
    return options


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


def _position_options(file: BinaryFile, width: int) -> dict[str, Any]:
    """Return the options of positions: relative, computed, stored sinusoids or learned ones."""
    if any(name.endswith(RELATIVE_BIAS) for name in file.shapes):
        return _relative_positions(file)
    tables = [file.shapes[name] for name in STORED_POSITIONS if name in file.shapes]
    if not tables:
        return {**COMPUTED_POSITIONS, "max_length": MAX_INPUT_LENGTH}
    lengths = [shape[0] for shape in tables]
    if [shape[1:] for shape in tables] != [(width,)] * 2 or min(lengths) < 2:
        file.refuse(
            f"expected tables of positions of width {width:,} as {' and '.join(STORED_POSITIONS)}, "
            f"got {', '.join(map(str, tables))}"
        )
    length = min(lengths)
    options = {"max_length": length}
    if max(lengths) * width <= MAX_POSITION_NUMBERS:
        stored = np.stack([file.read(name)[:length] for name in STORED_POSITIONS])
        for encoding, offset in itertools.product(SINUSOIDS, POSITION_OFFSETS):
            table = position_table(encoding, length, width, offset)
            if np.allclose(stored, table, rtol=0, atol=POSITION_TOLERANCE):
                return {**options, "positions": encoding, "position_offset": offset}
    return {**options, "positions": "learned"}


def _relative_positions(file: BinaryFile) -> dict[str, Any]:
    layers = {
        stack: [f"{stack}/layer_{i}" for i in range(count_layers(file.shapes, stack))]
        for stack in STACKS
    }
    sizes = {
        (file.shapes.get(f"{layer}/{RELATIVE_BIAS}", ()), file.number(f"{layer}/{MAX_DISTANCE}", 0))
        for layer in itertools.chain(*layers.values())
    }
    shape, distance = min(sizes)
    if len(sizes) > 1 or len(shape) != 2 or distance < 2:
        file.refuse(
            f"expected a table for each layer as '{RELATIVE_BIAS}', of one shape, with one number "
            f"as '{MAX_DISTANCE}', got {shorten(str(sorted(sizes)))}"
        )

    def same(names: list[str]) -> bool:
        first, *others = (file.read(f"{name}/{RELATIVE_BIAS}") for name in names)
        return all(np.array_equal(first, table) for table in others)

    return {
        "positions": "relative" if all(map(same, layers.values())) else "relative_by_layer",
        "position_buckets": shape[0],
        "position_max_distance": int(distance),
        "max_length": MAX_INPUT_LENGTH,
    }
