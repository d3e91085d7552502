"""Write a `Transformer` as a folder of CTranslate2, with CTranslate2's public specifications."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.export.to_libraries import counterparts
from tfk_transformer.importing.ctranslate2_folder.options import ACTIVATIONS, MAX_DISTANCE
from tfk_transformer.importing.ctranslate2_folder.weights import (
    OUTPUT_BIAS,
    RELATIVE_BIAS,
    STORED_POSITIONS,
    all_arrays,
    has_final_norm,
)
from tfk_transformer.importing.weights import STACKS, restore_arrays
from tfk_transformer.models.transformer import Transformer

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

# The bias of padding and of the start token, which are never predicted. It also fits float16, whose
# largest number is 65,504.
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
    """Write a new folder that `ctranslate2.Translator` loads, from a built model in float32.

    The translator adds the start and the end token to sources if the model reads them, and never
    predicts padding and the start token. The tokens are by id. The special tokens of both sides are
    the same. A shortlist is written as CTranslate2's vocabulary map, for searches with
    `use_vmap=True`. `quantization` is the type of the weights in the file, for example "int8".
    """
    if problems := counterparts.unsupported_options(model.config, counterparts.CTRANSLATE2):
        raise ValueError(
            f"model: expected options that CTranslate2 supports, got {'; '.join(problems)}."
        )
    lines = None if shortlist is None else vocabulary_map(shortlist, source_tokens, target_tokens)
    spec = _spec(model.config)
    spec.register_source_vocabulary(list(source_tokens))
    spec.register_target_vocabulary(list(target_tokens))
    spec.config.bos_token = spec.config.decoder_start_token = target_tokens[START_ID]
    spec.config.eos_token = target_tokens[END_ID]
    spec.config.unk_token = target_tokens[UNKNOWN_ID]
    _fill(spec, _arrays(model))
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
        # Only specifications of pre-norm stacks can have a final norm, but the engine applies a
        # final norm in every stack that has one.
        stack = make_spec(
            getattr(config, f"{name}_layers"),
            config.num_heads,
            pre_norm=True,
            no_final_norm=not has_final_norm(config, name),
            **options,
        )
        stack.pre_norm = config.normalizes_input
        stack.scale_embeddings = config.scale_embeddings
        stacks.append(stack)
    spec = TransformerSpec(*stacks)
    spec.config.add_source_bos = config.source_prefix == (START_ID,)
    spec.config.add_source_eos = config.source_end
    spec.config.layer_norm_epsilon = config.norm_epsilon
    return spec


def _fill(spec: "TransformerSpec", arrays: Mapping[str, Any]) -> None:
    """Set the attributes of a specification that have these names in a file."""
    from ctranslate2.specs.model_spec import visit_spec

    def set_value(part: Any, name: str, _: Any) -> None:
        if name in arrays:
            setattr(part, name.rpartition("/")[2], arrays[name])

    visit_spec(spec, set_value)


def _arrays(model: Transformer) -> dict[str, Any]:
    """Return the weights of a model, and the values of its positions, by their names in a file."""
    config = model.config
    weights = counterparts.plain_attention(model)
    source = weights["source_embedding/embeddings"]
    target = source if config.shares_source else weights["target_embedding/embeddings"]
    output = target if config.ties_output else np.ascontiguousarray(weights["output/kernel"].T)
    bias = weights.get("output/bias", np.zeros(len(target), "float32"))
    bias = np.maximum(bias, MIN_FLOAT16_BIAS)
    arrays: dict[str, Any] = {
        "encoder/embeddings_0/weight": source,
        "decoder/embeddings/weight": target,
        "decoder/projection/weight": output,
        OUTPUT_BIAS: np.where(np.arange(len(bias)) < END_ID, MIN_FLOAT16_BIAS, bias),
    }
    distance = np.int32(config.position_max_distance)
    for side, stack, name in zip(("source", "target"), STACKS, STORED_POSITIONS, strict=True):
        if not config.has_relative_positions:
            arrays[name] = np.asarray(getattr(model, f"{side}_positions").table)
            continue
        for i in range(getattr(config, f"{stack}_layers")):
            layer = f"{stack}/layer_{i}"
            suffix = f"_{i}" if config.has_biases_by_layer else ""
            table = weights[f"{stack}/relative_positions{suffix}/table"]
            arrays |= {f"{layer}/{RELATIVE_BIAS}": table, f"{layer}/{MAX_DISTANCE}": distance}
    named = all_arrays(config)
    # Of the biases that the roles of a product share, a missing one has zeros.
    present = {array.name for name, array in named.items() if name in weights}
    named = {name: array for name, array in named.items() if array.name in present}
    return arrays | restore_arrays(named, weights)
