"""Write a `Transformer` as a folder of CTranslate2, with CTranslate2's public specifications."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.export.to_libraries import counterparts
from tfk_transformer.importing.ctranslate2_folder.options import ACTIVATIONS
from tfk_transformer.importing.ctranslate2_folder.weights import (
    ATTENTION_PRODUCTS,
    FEED_FORWARD_PRODUCTS,
)
from tfk_transformer.models.transformer import Transformer

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

Weights = Mapping[str, np.ndarray]

# The bias of padding and of the start token, which are never predicted. It also fits float16, whose
# largest number is 65,504.
MIN_FLOAT16_BIAS = np.float32(-6e4)
VOCABULARY_MAP = "vmap.txt"  # CTranslate2's name

# The attention sublayers of a layer: CTranslate2's name, and this library's names of the attention
# and of the residual connection.
ATTENTION_PARTS = {
    "encoder": [("self_attention", "attention", "attention_residual")],
    "decoder": [
        ("self_attention", "self_attention", "self_residual"),
        ("attention", "cross_attention", "cross_residual"),
    ],
}


def write_ctranslate2(
    model: Transformer,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    folder: Path,
    quantization: str | None = None,
    shortlist: Shortlist | None = None,
) -> None:
    """Write a new folder that `ctranslate2.Translator` loads, from a built model in float32.

    The translator adds the end token to sources if the model reads it, and never predicts padding
    and the start token. The tokens are by id. The special tokens of both sides are the same. A
    shortlist is written as CTranslate2's vocabulary map, for searches with `use_vmap=True`.
    `quantization` is the type of the weights in the file, for example "int8".
    """
    if problems := counterparts.unsupported_options(model.config, counterparts.CTRANSLATE2):
        raise ValueError(
            f"model: expected options that CTranslate2 supports, got {'; '.join(problems)}."
        )
    lines = None if shortlist is None else vocabulary_map(shortlist, source_tokens, target_tokens)
    weights = counterparts.plain_attention(model)
    spec = _spec(model.config)
    spec.register_source_vocabulary(list(source_tokens))
    spec.register_target_vocabulary(list(target_tokens))
    spec.config.bos_token = spec.config.decoder_start_token = target_tokens[START_ID]
    spec.config.eos_token = target_tokens[END_ID]
    spec.config.unk_token = target_tokens[UNKNOWN_ID]
    _fill_ends(spec, model, weights)
    for stack, parts in ATTENTION_PARTS.items():
        for i, layer in enumerate(getattr(spec, stack).layer):
            path = f"{stack}/layer_{i}"
            for part, attention, residual in parts:
                part_spec = getattr(layer, part)
                products = ATTENTION_PRODUCTS[part]
                _fill_attention(part_spec, weights, f"{path}/{attention}", products)
                _fill_norm(part_spec.layer_norm, weights, f"{path}/{residual}/norm")
            _fill_feed_forward(layer.ffn, weights, path)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    if lines is not None:
        (folder / VOCABULARY_MAP).write_text("".join(lines), "utf-8", newline="\n")


def vocabulary_map(
    shortlist: Shortlist, source_tokens: Sequence[str], target_tokens: Sequence[str]
) -> list[str]:
    """Return the lines of CTranslate2's vocabulary map: a source token, a tab, and its candidates.

    The first line has an empty source token, and the candidates for every text.
    """
    tokens = {*source_tokens, *target_tokens}
    if broken := [token for token in tokens if set(token) & set(" \t\r\n")]:
        raise ValueError(
            f"shortlist: expected tokens without spaces, tabs and line ends for {VOCABULARY_MAP}, "
            f"got {sorted(broken)[:3]}; export for CTranslate2 without a shortlist."
        )
    rows = {"": shortlist.common, **dict(zip(source_tokens, shortlist.likely, strict=True))}
    candidates = {
        source: [target_tokens[token] for token in ids if token != PAD_ID]
        for source, ids in rows.items()
    }
    return [f"{source}\t{' '.join(texts)}\n" for source, texts in candidates.items() if texts]


def _spec(config: TransformerConfig) -> "TransformerSpec":
    """Return the specification of a model, without vocabularies and weights."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    pre_norm = config.normalizes_input
    options: dict[str, Any] = {
        "activation": Activation(ACTIVATIONS.index(config.ff_activation)),
        "layernorm_embedding": config.embedding_norm,
        "relative_attention_bias": config.has_relative_positions,
        "ffn_glu": config.ff_gated,
        "rms_norm": config.has_rms_norm,
    }
    if config.query_width * config.num_heads != config.model_dim:
        options["head_dim"] = config.query_width
    specs = {"encoder": TransformerEncoderSpec, "decoder": TransformerDecoderSpec}
    stacks = []
    for name, make_spec in specs.items():
        final_norm = getattr(config, f"{name}_final_norm")
        # Only specifications of pre-norm stacks can have a final norm, but the engine applies a
        # final norm in every stack that has one.
        stack = make_spec(
            getattr(config, f"{name}_layers"),
            config.num_heads,
            pre_norm=True,
            no_final_norm=not (pre_norm if final_norm is None else final_norm),
            **options,
        )
        stack.pre_norm = pre_norm
        stack.scale_embeddings = config.scale_embeddings
        stacks.append(stack)
    spec = TransformerSpec(*stacks)
    spec.config.add_source_eos = config.source_end
    spec.config.layer_norm_epsilon = config.norm_epsilon
    return spec


def _fill_ends(spec: "TransformerSpec", model: Transformer, weights: Weights) -> None:
    """Fill the embeddings, the positions, the projection, and the norms outside of layers."""
    config = model.config
    source = weights["source_embedding/embeddings"]
    target = source if config.shares_source else weights["target_embedding/embeddings"]
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = (
        target if config.ties_output else np.ascontiguousarray(weights["output/kernel"].T)
    )
    bias = weights.get("output/bias", np.zeros(len(target), "float32"))
    bias = np.maximum(bias, MIN_FLOAT16_BIAS)
    spec.decoder.projection.bias = np.where(np.arange(len(bias)) < END_ID, MIN_FLOAT16_BIAS, bias)
    for side, name in (("source", "encoder"), ("target", "decoder")):
        stack = getattr(spec, name)
        if f"{name}/final_norm/gamma" in weights:
            _fill_norm(stack.layer_norm, weights, f"{name}/final_norm")
        if config.embedding_norm:
            _fill_norm(stack.layernorm_embedding, weights, f"{side}_positions/norm")
        if not config.has_relative_positions:
            table = np.asarray(getattr(model, f"{side}_positions").table)
            stack.position_encodings.encodings = table
            continue
        for i, layer in enumerate(stack.layer):
            suffix = f"_{i}" if config.has_biases_by_layer else ""
            attention = layer.self_attention
            attention.relative_attention_bias = weights[f"{name}/relative_positions{suffix}/table"]
            attention.relative_attention_max_distance = np.int32(config.position_max_distance)


def _fill_attention(spec: Any, weights: Weights, name: str, products: Mapping[str, int]) -> None:
    """Fill an attention sublayer; `products` has the number of the product of each role."""
    *inputs, output = spec.linear
    for number, linear in enumerate(inputs):
        roles = [role for role, product in products.items() if product == number]
        projections = [weights[f"{name}/{role}"] for role in roles]  # (H, D, width)
        joined = np.concatenate(projections).transpose(0, 2, 1)
        linear.weight = joined.reshape(-1, joined.shape[2])
        if any(f"{name}/{role}_bias" in weights for role in roles):
            linear.bias = np.concatenate([_bias(weights, f"{name}/{role}") for role in roles])
    output.weight = np.ascontiguousarray(weights[f"{name}/output"].T)
    if f"{name}/output_bias" in weights:
        output.bias = weights[f"{name}/output_bias"]


def _bias(weights: Weights, name: str) -> np.ndarray:
    """Return a role's bias (H * width,); zeros if only another role of the product has a bias."""
    heads, _, width = weights[name].shape
    return weights.get(f"{name}_bias", np.zeros((heads, 1, width), "float32")).reshape(-1)


def _fill_feed_forward(spec: Any, weights: Weights, layer: str) -> None:
    for name, ctranslate2_name in FEED_FORWARD_PRODUCTS.items():
        dense = f"{layer}/feed_forward/{name}"
        if f"{dense}/kernel" in weights:
            linear = getattr(spec, ctranslate2_name)
            linear.weight = np.ascontiguousarray(weights[f"{dense}/kernel"].T)
            if f"{dense}/bias" in weights:
                linear.bias = weights[f"{dense}/bias"]
    _fill_norm(spec.layer_norm, weights, f"{layer}/ff_residual/norm")


def _fill_norm(spec: Any, weights: Weights, name: str) -> None:
    spec.gamma = weights[f"{name}/gamma"]
    if f"{name}/beta" in weights:  # not in norms of type "rms"
        spec.beta = weights[f"{name}/beta"]
