"""BART and its descendants in Hugging Face's layout: their configuration, and their arrays."""

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.arrays import Arrays
from tfk_transformer.importing.hugging_face import model_folder
from tfk_transformer.importing.hugging_face.search_notes import convert_search_settings
from tfk_transformer.importing.imported import ForeignConfig, Imported
from tfk_transformer.importing.vocabulary import Side, Vocabulary
from tfk_transformer.importing.weights import (
    STACKS,
    Array,
    layer_arrays,
    norm_arrays,
    read_arrays,
    table_arrays,
)
from tfk_transformer.layers.positions import position_table
from tfk_transformer.pipelines.weights import check_sizes

# Activations with another name here. The first of several names is written.
BART_ACTIVATIONS = {
    "swish": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
}
BART_EPSILON = 1e-5  # of every layer norm
# Options of a `TransformerConfig` by the names of their values in a config.json.
OPTIONS = {
    "d_model": "model_dim",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "ff_dim",
    "scale_embedding": "scale_embeddings",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "ff_dropout",
}
SHARED_TABLE = "model.shared.weight"  # of both sides
SOURCE_TABLE = "model.encoder.embed_tokens.weight"
TARGET_TABLE = "model.decoder.embed_tokens.weight"
OUTPUT_TABLE = "lm_head.weight"
TABLE_NAMES = (SHARED_TABLE, SOURCE_TABLE, TARGET_TABLE, OUTPUT_TABLE)  # of a model's only table
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
UNUSED_POSITIONS = 2  # rows of a table of learned positions before the row of the first one
LOGITS_BIAS = "final_logits_bias"
# Suffixes of the name of an attention.
ATTENTION_NAMES = {
    "query": ".q_proj.weight",
    "query_bias": ".q_proj.bias",
    "key": ".k_proj.weight",
    "key_bias": ".k_proj.bias",
    "value": ".v_proj.weight",
    "value_bias": ".v_proj.bias",
    "output": ".out_proj.weight",
    "output_bias": ".out_proj.bias",
    "gamma": "_layer_norm.weight",
    "beta": "_layer_norm.bias",
}
OTHER_NAMES = {
    "feed_forward/inner/kernel": "fc1.weight",
    "feed_forward/inner/bias": "fc1.bias",
    "feed_forward/outer/kernel": "fc2.weight",
    "feed_forward/outer/bias": "fc2.bias",
    "ff_residual/norm/gamma": "final_layer_norm.weight",
    "ff_residual/norm/beta": "final_layer_norm.bias",
}
# `TransformerConfig` options of the families with one table and norms before the sublayers.
PRE_NORM_OPTIONS = {
    "tie_embeddings": "all",
    "norm": "pre",
    "encoder_final_norm": True,
    "decoder_final_norm": True,
}


class BartConfig(ForeignConfig):
    """The values of a config.json of BART's descendants."""

    # Pairs of fields that must be equal. The second value of a pair may be None.
    equal_values: ClassVar[tuple[tuple[str, str], ...]] = ()
    family_options: ClassVar[Mapping[str, Any]]  # `TransformerConfig` options of a family
    position_names: ClassVar[tuple[str, ...]] = POSITION_TABLES
    has_logits_bias: ClassVar[bool] = True

    vocab_size: int
    d_model: int
    encoder_layers: int
    decoder_layers: int
    encoder_attention_heads: int
    decoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_ffn_dim: int
    max_position_embeddings: int
    activation_function: Literal[
        "relu", "gelu", "swish", "silu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu"
    ]
    scale_embedding: bool
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    pad_token_id: int
    eos_token_id: int
    decoder_start_token_id: int

    def _problems(self) -> Iterator[str]:
        for name, equal_name in (
            ("encoder_attention_heads", "decoder_attention_heads"),
            *self.equal_values,
        ):
            value = getattr(self, name)
            equal_value = getattr(self, equal_name)
            if equal_value not in (None, value):
                yield f"{equal_name}: expected {value}, the value of {name}, got {equal_value}"

    @property
    def target_rows(self) -> int:
        """The number of rows of the target's tables."""
        return self.vocab_size

    @property
    def shared_names(self) -> Sequence[str]:
        """The names of which a shared table has one or several in a file."""
        return TABLE_NAMES

    def to_transformer_config(
        self, source: Vocabulary, target: Vocabulary, **options: Any
    ) -> TransformerConfig:
        """Return the configuration of an equivalent `Transformer`, with further options."""
        is_same = self.decoder_ffn_dim == self.encoder_ffn_dim
        activation = self.activation_function
        values = {
            **{ours: getattr(self, theirs) for theirs, ours in OPTIONS.items()},
            "source_vocab_size": len(source.pieces),
            "target_vocab_size": len(target.pieces),
            "max_length": self.max_position_embeddings,
            "decoder_ff_dim": None if is_same else self.decoder_ffn_dim,
            "ff_activation": BART_ACTIVATIONS.get(activation, activation),
            "norm_epsilon": BART_EPSILON,
            "attention_bias": True,
            "output_bias": True,
        }
        return TransformerConfig(**{**values, **self.family_options, **options})


def common_values(config: TransformerConfig) -> dict[str, Any]:
    """Return the values of a config.json for all families; see `from_transformer_config`."""
    activations = {ours: theirs for theirs, ours in reversed(BART_ACTIVATIONS.items())}
    return {
        **{theirs: getattr(config, ours) for theirs, ours in OPTIONS.items()},
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.ff_width,
        "decoder_ffn_dim": config.decoder_options().ff_width,
        "activation_function": activations.get(config.ff_activation, config.ff_activation),
    }


def bart_arrays(config: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of all layers and final norms by their names in a `Transformer`."""
    arrays: dict[str, Array] = {}
    attentions = [
        {weight: f"{name}{suffix}" for weight, suffix in ATTENTION_NAMES.items()}
        for name in ("self_attn", "encoder_attn")
    ]
    for stack in STACKS:
        for i in range(getattr(config, f"{stack}_layers")):
            prefix = f"model.{stack}.layers.{i}."
            arrays |= layer_arrays(config, stack, i, prefix, attentions, OTHER_NAMES)
    for stack in STACKS if config.normalizes_input else ():
        norm = (f"model.{stack}.layer_norm.{part}" for part in ("weight", "bias"))
        arrays |= norm_arrays(config, f"{stack}/final_norm", *norm)
    return arrays


def import_folder(
    folder: Path,
    values: Mapping[str, Any],
    hf_config: BartConfig,
    config: TransformerConfig,
    source: Side,
    target: Side,
    family: str,
    never_predicted: Sequence[Sequence[int]],
    leading_tokens: int = 1,
    replaced: Collection[str] = (),
) -> Imported:
    """Return the model in a folder; for the last arguments, see `convert_search_settings`."""
    file = model_folder.open_arrays(folder)
    check_sizes(config, file.shapes, file.path)
    shared_names = hf_config.shared_names
    shared = model_folder.shared_array_name(file, shared_names) if shared_names else ""
    tables = [
        shared if name in shared_names else name
        for name in (SOURCE_TABLE, TARGET_TABLE, OUTPUT_TABLE)
    ]
    rows = (hf_config.vocab_size, hf_config.target_rows)
    arrays = bart_arrays(config) | table_arrays(config, tables, rows, source[0], target[0])
    if config.has_learned_positions:
        arrays |= _learned_positions(hf_config, config)
    bias = Array(LOGITS_BIAS, (1, hf_config.target_rows), np.ravel)
    # Sinusoids are checked separately, and arrays under other names of a shared table are equal.
    optional = {*shared_names, *hf_config.position_names}
    weights = read_arrays(
        file, arrays, optional, target[0], bias if hf_config.has_logits_bias else None
    )
    if not config.has_learned_positions:
        _check_sinusoids(file, hf_config, config, family)
    search, notes = convert_search_settings(
        values,
        model_folder.read_optional_json(folder / model_folder.GENERATION),
        hf_config.max_position_embeddings,
        never_predicted,
        leading_tokens,
        replaced,
    )
    return Imported(config, weights, source[1], target[1], family, search, notes)


def _learned_positions(hf_config: BartConfig, config: TransformerConfig) -> dict[str, Array]:
    shape = (UNUSED_POSITIONS + hf_config.max_position_embeddings, hf_config.d_model)
    arrays: dict[str, Array] = {}
    for side, stack, added in (
        ("source", "encoder", config.source_additions),
        ("target", "decoder", config.target_prefix),
    ):
        used = slice(UNUSED_POSITIONS, UNUSED_POSITIONS + len(added) + config.max_length)
        name = f"model.{stack}.embed_positions.weight"
        arrays[f"{side}_positions/table"] = Array(name, shape, operator.itemgetter(used))
        norm = (f"model.{stack}.layernorm_embedding.{part}" for part in ("weight", "bias"))
        arrays |= norm_arrays(config, f"{side}_positions/norm", *norm)
    return arrays


def _check_sinusoids(
    file: Arrays, hf_config: BartConfig, config: TransformerConfig, family: str
) -> None:
    """Refuse a file with other position tables than the family's, if it has any."""
    offset = config.position_offset
    rows = offset + hf_config.max_position_embeddings
    table = position_table(config.positions, rows, config.model_dim)
    if offset:
        table[hf_config.pad_token_id] = 0
    for name in hf_config.position_names:
        if name in file.shapes and not (
            file.shapes[name] == table.shape and np.allclose(file.read(name), table, atol=1e-3)
        ):
            raise ValueError(
                f"folder: expected the sinusoids of {family} as '{name}' of {file.path}, got other "
                "values."
            )
