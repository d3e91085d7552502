"""A `Transformer` as a folder of CTranslate2, written with CTranslate2's public specification
classes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.export.to_libraries.counterparts import CTRANSLATE2, unsupported_options
from tfk_transformer.export.to_libraries.plain_attention import plain_attention
from tfk_transformer.models.transformer import Transformer

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

Weights = Mapping[str, np.ndarray]

# Names of CTranslate2's `Activation`.
CTRANSLATE2_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}
# The logit of padding and of the start token, which are never predicted. It can also be stored in
# float16, whose largest number is 65,504.
MIN_FLOAT16_BIAS = np.float32(-6e4)
VOCABULARY_MAP = "vmap.txt"  # CTranslate2's name


def write_ctranslate2(
    model: Transformer,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    folder: Path,
    quantization: str | None = None,
    shortlist: Shortlist | None = None,
) -> None:
    """Write a folder that `ctranslate2.Translator` loads. It adds the end token to sources, and
    never predicts padding and start.

    Args:
        model: a built model in float32.
        source_tokens: the tokens of the source by id; the special ones are the same as those of the
            target.
        target_tokens: the tokens of the target by id.
        folder: a new folder.
        quantization: the type of the weights in the file, such as "int8". Default: float32.
        shortlist: is written as CTranslate2's vocabulary map, which searches with `use_vmap=True`
            use. None: no map.

    Raises:
        ValueError: with all options of the model that CTranslate2 lacks, or with the tokens that a
            vocabulary map cannot hold.
        ImportError: if CTranslate2 is not installed.
    """
    if problems := unsupported_options(model.config, CTRANSLATE2):
        raise ValueError(
            f"model: expected one that CTranslate2 can hold, got {'; '.join(problems)}."
        )
    lines = None if shortlist is None else vocabulary_map(shortlist, source_tokens, target_tokens)
    weights = plain_attention(
        model.config, {name: np.asarray(weight) for name, weight in model.named_weights.items()}
    )
    tables = {
        f"{name}/table": np.asarray(getattr(model, name).table)
        for name in ("source_positions", "target_positions")
    }
    spec = _spec(model.config)
    _describe(spec, model.config, source_tokens, target_tokens)
    _fill_ends(spec, model.config, {**weights, **tables})
    _fill_layers(spec, weights)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    if lines is not None:
        (folder / VOCABULARY_MAP).write_text("".join(lines), "utf-8", newline="\n")


def vocabulary_map(
    shortlist: Shortlist, source_tokens: Sequence[str], target_tokens: Sequence[str]
) -> list[str]:
    """Return the lines of CTranslate2's vocabulary map: a source token, a tab, and its candidates,
    separated by spaces.

    The first line is that of an empty source token: its candidates are those of every text.

    Raises:
        ValueError: if tokens have spaces, tabs or line ends.
    """
    if broken := [
        token for token in {*source_tokens, *target_tokens} if set(token) & set(" \t\r\n")
    ]:
        raise ValueError(
            f"shortlist: expected tokens without spaces, tabs and line ends for {VOCABULARY_MAP}, "
            f"got {sorted(broken)[:3]}; "
            "export for CTranslate2 without a shortlist."
        )
    rows = {"": shortlist.common, **dict(zip(source_tokens, shortlist.likely, strict=True))}
    candidates = {
        source: [target_tokens[token] for token in row if token != PAD_ID]
        for source, row in rows.items()
    }
    return [f"{source}\t{' '.join(tokens)}\n" for source, tokens in candidates.items() if tokens]


def _spec(config: TransformerConfig) -> "TransformerSpec":
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    more: dict[str, Any] = {"activation": Activation[CTRANSLATE2_ACTIVATIONS[config.ff_activation]]}
    if config.query_width * config.num_heads != config.model_dim:
        more["head_dim"] = config.query_width
    stacks = []
    for name, kind in (("encoder", TransformerEncoderSpec), ("decoder", TransformerDecoderSpec)):
        final = getattr(config, f"{name}_final_norm")
        # Only specifications of pre-norm stacks have a final norm, but the engine applies one
        # wherever there is one.
        without = not (config.norm == "pre" if final is None else final)
        stack = kind(
            getattr(config, f"{name}_layers"),
            config.num_heads,
            pre_norm=True,
            no_final_norm=without,
            **more,
        )
        stack.pre_norm = config.norm == "pre"
        stacks.append(stack)
    return TransformerSpec(*stacks)


def _describe(
    spec: "TransformerSpec",
    config: TransformerConfig,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
) -> None:
    """Set everything but the weights."""
    spec.register_source_vocabulary(list(source_tokens))
    spec.register_target_vocabulary(list(target_tokens))
    spec.config.bos_token = spec.config.decoder_start_token = target_tokens[START_ID]
    spec.config.eos_token, spec.config.unk_token = target_tokens[END_ID], target_tokens[UNKNOWN_ID]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = config.scale_embeddings


def _fill_ends(spec: "TransformerSpec", config: TransformerConfig, weights: Weights) -> None:
    """Fill what stands before and after the layers."""
    source = weights["source_embedding/embeddings"]
    target = source if config.tie_embeddings == "all" else weights["target_embedding/embeddings"]
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = source, target
    spec.encoder.position_encodings.encodings = weights["source_positions/table"]
    spec.decoder.position_encodings.encodings = weights["target_positions/table"]
    spec.decoder.projection.weight = (
        target if config.tie_embeddings != "none" else _transposed(weights["output/kernel"])
    )
    bias = np.maximum(
        weights.get("output/bias", np.zeros(len(target), "float32")), MIN_FLOAT16_BIAS
    )
    spec.decoder.projection.bias = np.where(np.arange(len(bias)) < END_ID, MIN_FLOAT16_BIAS, bias)
    for name in ("encoder", "decoder"):
        if f"{name}/final_norm/gamma" in weights:
            _fill_norm(getattr(spec, name).layer_norm, weights, f"{name}/final_norm")


def _fill_layers(spec: "TransformerSpec", weights: Weights) -> None:
    for i, layer in enumerate(spec.encoder.layer):
        name = f"encoder/layer_{i}"
        _fill_attention(
            layer.self_attention, weights, f"{name}/attention", [["query", "key", "value"]]
        )
        _fill_norm(layer.self_attention.layer_norm, weights, f"{name}/attention_residual/norm")
        _fill_feed_forward(layer.ffn, weights, name)
    for i, layer in enumerate(spec.decoder.layer):
        name = f"decoder/layer_{i}"
        _fill_attention(
            layer.self_attention, weights, f"{name}/self_attention", [["query", "key", "value"]]
        )
        _fill_norm(layer.self_attention.layer_norm, weights, f"{name}/self_residual/norm")
        _fill_attention(
            layer.attention, weights, f"{name}/cross_attention", [["query"], ["key", "value"]]
        )
        _fill_norm(layer.attention.layer_norm, weights, f"{name}/cross_residual/norm")
        _fill_feed_forward(layer.ffn, weights, name)


def _fill_attention(spec: Any, weights: Weights, name: str, products: list[list[str]]) -> None:
    """Fill an attention layer, in which the roles of each of `products` are projected together."""
    *inputs, output = spec.linear
    for linear, roles in zip(inputs, products, strict=True):
        linear.weight = np.concatenate([_as_rows(weights[f"{name}/{role}"]) for role in roles])
        if any(f"{name}/{role}_bias" in weights for role in roles):
            linear.bias = np.concatenate([_bias(weights, f"{name}/{role}") for role in roles])
    output.weight = _transposed(weights[f"{name}/output"])
    if f"{name}/output_bias" in weights:
        output.bias = weights[f"{name}/output_bias"]


def _bias(weights: Weights, name: str) -> np.ndarray:
    """Return a role's bias, heads side by side; zeros where another role of the same product has
    one and this has none.
    """
    heads, _, width = weights[name].shape
    return weights.get(f"{name}_bias", np.zeros((heads, 1, width), "float32")).reshape(-1)


def _fill_feed_forward(spec: Any, weights: Weights, layer: str) -> None:
    for linear, name in ((spec.linear_0, "inner"), (spec.linear_1, "outer")):
        linear.weight = _transposed(weights[f"{layer}/feed_forward/{name}/kernel"])
        linear.bias = weights[f"{layer}/feed_forward/{name}/bias"]
    _fill_norm(spec.layer_norm, weights, f"{layer}/ff_residual/norm")


def _fill_norm(spec: Any, weights: Weights, name: str) -> None:
    spec.gamma, spec.beta = weights[f"{name}/gamma"], weights[f"{name}/beta"]


def _as_rows(weight: np.ndarray) -> np.ndarray:
    """(H, D, width) -> (H*width, D), heads one below the other."""
    return weight.transpose(0, 2, 1).reshape(-1, weight.shape[1])


def _transposed(weight: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(weight.T)
