"""T5, flan-T5, mT5, UMT5, MADLAD-400 and ByT5 in Hugging Face's layout.

Attention scores have no divisor, so the weights of queries are multiplied by it here.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.arrays import Arrays
from tfk_transformer.importing.hugging_face import model_folder
from tfk_transformer.importing.hugging_face.bart import BART_ACTIVATIONS, OUTPUT_TABLE
from tfk_transformer.importing.hugging_face.search_notes import convert_search_settings
from tfk_transformer.importing.hugging_face.t5_tokens import BYT5, read_t5_tokens
from tfk_transformer.importing.imported import (
    ForeignConfig,
    Imported,
    check_languages,
    with_text_prefix,
)
from tfk_transformer.importing.vocabulary import (
    UNIGRAM,
    Piece,
    SpecialRows,
    Vocabulary,
    text_pieces,
)
from tfk_transformer.importing.weights import (
    SUBLAYERS,
    Array,
    layer_arrays,
    norm_arrays,
    read_arrays,
    table_arrays,
)
from tfk_transformer.pipelines.weights import check_sizes
from tfk_transformer.text.languages import Languages

SHARED = "shared.weight"
TABLES = (SHARED, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # are one table
# In early files of T5. The class ignores it.
UNUSED_BIAS = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
ACTIVATIONS = ("relu", "gelu", "silu", *BART_ACTIVATIONS)
# The longest source and target if a folder does not state one. ByT5's tokens are bytes.
LENGTHS = {False: 512, True: 1024}
MAX_STATED_LENGTH = 2**16  # transformers states a very large number for no limit
UNSCALED = (
    "the folder states tie_word_embeddings False: logits are computed as the model was trained; "
    "transformers 5 divides them by sqrt(d_model), which changes beams and scores"
)
FAMILY_NAMES = {"t5": "T5", "mt5": "mT5", "umt5": "UMT5"}
TAG = re.compile("<2([A-Za-z_-]+)>")  # of a target language, in MADLAD-400
# The arrays of an attention by the weight: the third part of a name.
ROLES = {"query": "q", "key": "k", "value": "v", "output": "o"}


class T5Config(ForeignConfig):
    """The values of a config.json of the T5 family."""

    model_type: Literal["t5", "mt5", "umt5"]
    is_encoder_decoder: Literal[True] = True
    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_layers: int
    num_decoder_layers: int | None = None
    num_heads: int
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str = ""
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    n_positions: int | None = Field(default=None, gt=1)
    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int | None = None

    def _problems(self) -> Iterator[str]:
        if self.activation not in ACTIVATIONS:
            yield (
                "feed_forward_proj: expected one of "
                f"{', '.join(ACTIVATIONS)}, with or without gated-, got {self.feed_forward_proj}"
            )

    @property
    def projection(self) -> str:
        """The kind of the feed-forward block, such as "gated-gelu"."""
        return self.feed_forward_proj or ("relu" if self.model_type == "t5" else "gated-gelu")

    @property
    def activation(self) -> str:
        """The activation by the family's name; "gated-gelu" always meant the approximation."""
        if self.projection == "gated-gelu":
            return "gelu_new"
        return self.projection.removeprefix("gated-")

    @property
    def start_row(self) -> int:
        """The row of the decoder's first token."""
        start = self.decoder_start_token_id
        return self.pad_token_id if start is None else start

    @property
    def scales_output(self) -> bool:
        """Whether the decoder's output is divided by sqrt(d_model)."""
        if self.scale_decoder_outputs is not None:
            return self.scale_decoder_outputs
        return self.tie_word_embeddings and self.model_type != "mt5"

    def to_transformer_config(self, vocab_size: int, tied: bool, length: int) -> TransformerConfig:
        """Return the configuration of an equivalent `Transformer` for texts up to a length."""
        activation = self.activation
        return TransformerConfig(
            source_vocab_size=vocab_size,
            target_vocab_size=vocab_size,
            split_sentences=False,
            tie_embeddings="all" if tied else "inputs",
            max_length=length,
            model_dim=self.d_model,
            num_heads=self.num_heads,
            key_dim=self.d_kv,
            value_dim=self.d_kv,
            ff_dim=self.d_ff,
            ff_activation=BART_ACTIVATIONS.get(activation, activation),
            ff_gated=self.projection.startswith("gated-"),
            ff_bias=False,
            encoder_layers=self.num_layers,
            decoder_layers=self.num_decoder_layers or self.num_layers,
            norm_type="rms",
            norm_epsilon=self.layer_norm_epsilon,
            positions="relative_by_layer" if self.model_type == "umt5" else "relative",
            position_buckets=self.relative_attention_num_buckets,
            position_max_distance=self.relative_attention_max_distance,
            scale_embeddings=False,
            dropout=self.dropout_rate,
            attention_dropout=self.dropout_rate,
            ff_dropout=self.dropout_rate,
            output_bias=True,
        )


def read_t5(folder: Path, values: Mapping[str, Any], languages: Languages) -> Imported:
    """Read a folder of the T5 family.

    The target language of MADLAD-400, such as "de", becomes the prefix "<2de>" of every source.
    Without it, and in other models, the texts say what is asked for.
    """
    generation = model_folder.read_optional_json(folder / model_folder.GENERATION)
    # transformers 5 writes this token only into the other file.
    start = {"decoder_start_token_id": generation.get("decoder_start_token_id")}
    values = {**start, **values}
    hf_config = T5Config(**values)
    pieces, proto, added = read_t5_tokens(folder, values)
    vocabulary = _vocabulary(pieces, proto, hf_config)
    can_add = proto.trainer_spec.model_type == UNIGRAM
    model = vocabulary.sentencepiece_model(proto, added if can_add else ())
    file = model_folder.open_arrays(folder)
    # transformers ties the projection to the embedding table, unless a file has both and they
    # differ.
    table = next((name for name in TABLES if name in file.shapes), None)
    has_both = table is not None and OUTPUT_TABLE in file.shapes
    is_tied = not has_both or np.array_equal(file.read(str(table)), file.read(OUTPUT_TABLE))
    length = _length(folder, values, generation, hf_config)
    config = hf_config.to_transformer_config(len(vocabulary.pieces), is_tied, length)
    arrays = _read_weights(file, hf_config, config, vocabulary)
    search, notes = convert_search_settings(
        {**values, "decoder_start_token_id": hf_config.start_row},
        generation,
        length,
        [[hf_config.pad_token_id]],
    )
    if added and not can_add:
        notes += (f"added tokens are text here: {', '.join(added[:5])}, …",)
    if hf_config.model_type == "umt5" and not hf_config.scales_output:
        notes += (UNSCALED,)
    family = FAMILY_NAMES[hf_config.model_type]
    imported = Imported(config, arrays, model, model, family, search, notes)
    tags = {tag[1]: piece for piece in pieces if (tag := TAG.fullmatch(piece))}
    if languages.target is None or not tags:
        return imported
    check_languages(languages._replace(source=None), tags, "MADLAD-400", required=["target"])
    return with_text_prefix(imported, tags[languages.target])._replace(languages=languages)


def _vocabulary(pieces: Mapping[str, int], proto: ModelProto, hf_config: T5Config) -> Vocabulary:
    """Return the vocabulary of both sides, with the unnamed rows that the model may predict."""
    types = {piece.piece: piece.type for piece in proto.pieces}
    unknown = next(row for piece, row in pieces.items() if types.get(piece) == Piece.UNKNOWN)
    special = SpecialRows(
        hf_config.pad_token_id, hf_config.start_row, hf_config.eos_token_id, unknown
    )
    added = set(text_pieces(proto)) - set(pieces)
    return Vocabulary.remapped(pieces, hf_config.vocab_size, special, added)


def _length(
    folder: Path, values: Mapping[str, Any], generation: Mapping[str, Any], hf_config: T5Config
) -> int:
    """Return the longest source and target, which the family's positions do not limit."""
    tokenizer = model_folder.read_optional_json(folder / model_folder.TOKENIZER_CONFIG)
    is_bytes = {**values, **tokenizer}.get("tokenizer_class") == BYT5
    stated = [
        hf_config.n_positions,
        tokenizer.get("model_max_length"),
        *(settings.get("max_length") for settings in (values, generation)),
    ]
    usable = [n for n in stated if type(n) is int and 0 < n <= MAX_STATED_LENGTH]
    return max([LENGTHS[is_bytes], *usable])


def _read_weights(
    file: Arrays, hf_config: T5Config, config: TransformerConfig, vocabulary: Vocabulary
) -> dict[str, np.ndarray]:
    check_sizes(config, file.shapes, file.path)
    names = (*TABLES, OUTPUT_TABLE) if config.ties_output else TABLES
    table = model_folder.shared_array_name(file, names)
    rows = (hf_config.vocab_size, hf_config.vocab_size)
    arrays = {
        **_stack("encoder", config),
        **_stack("decoder", config),
        **table_arrays(config, (table, table, OUTPUT_TABLE), rows, vocabulary, vocabulary),
    }
    if hf_config.scales_output:
        scale = np.float32(hf_config.d_model**-0.5)
        norm = arrays["decoder/final_norm/gamma"]
        arrays["decoder/final_norm/gamma"] = norm.prepared(lambda gamma: gamma * scale)
    return read_arrays(file, arrays, {*names, UNUSED_BIAS}, vocabulary)


def _stack(stack: str, config: TransformerConfig) -> dict[str, Array]:
    attentions = [
        {
            **{weight: f"{index}.{name}.{letter}.weight" for weight, letter in ROLES.items()},
            "gamma": f"{index}.layer_norm.weight",
        }
        for index, name in enumerate(("SelfAttention", "EncDecAttention"))
    ]
    last = len(SUBLAYERS[stack])
    parts = {"inner": "wi_0", "linear": "wi_1"} if config.ff_gated else {"inner": "wi"}
    others = {
        f"feed_forward/{part}/kernel": f"{last}.DenseReluDense.{name}.weight"
        for part, name in {**parts, "outer": "wo"}.items()
    }
    others["ff_residual/norm/gamma"] = f"{last}.layer_norm.weight"
    by_layer = config.has_biases_by_layer
    divisor = np.float32(config.query_width**0.5)
    arrays: dict[str, Array] = {}
    for i in range(getattr(config, f"{stack}_layers")):
        prefix = f"{stack}.block.{i}.layer."
        for name, array in layer_arrays(config, stack, i, prefix, attentions, others).items():
            is_query = name.endswith("/query")
            arrays[name] = array.prepared(lambda kernel: kernel * divisor) if is_query else array
        if by_layer or i == 0:
            table = f"{stack}/relative_positions{f'_{i}' if by_layer else ''}/table"
            theirs = f"{prefix}0.SelfAttention.relative_attention_bias.weight"
            arrays[table] = Array(theirs, (config.position_buckets, config.num_heads))
    return arrays | norm_arrays(config, f"{stack}/final_norm", f"{stack}.final_layer_norm.weight")
