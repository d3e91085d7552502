"""MarianMT, the family of the opus-mt models, in Hugging Face's layout.

Its layers are those of BART with norms after the residual connections and sinusoidal positions. The decoder starts with the padding
token, whose row serves the start token here; padding itself is never predicted.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import ConfigDict, model_validator

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.record import Record
from tfk_transformer.importing.bart_layers import Array, layer_arrays
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.model_folder import GENERATION, Arrays, check_files, one_of, open_arrays, read_json
from tfk_transformer.importing.search_notes import known_settings
from tfk_transformer.importing.vocabulary import Special, Vocabulary, arranged, parsed_model, sentencepiece_model, text_pieces
from tfk_transformer.layers.position_encoding import position_table
from tfk_transformer.models.base import array_problems
from tfk_transformer.pipelines.weights import check_sizes

POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
SHARED, OUTPUT = "model.shared.weight", "lm_head.weight"
SOURCE, TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
ONE_TABLE = {"all": (SHARED, SOURCE, TARGET, OUTPUT), "target": (TARGET, OUTPUT), "none": ()}  # names of one table, by what is tied
BIAS = "final_logits_bias"
END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"
ACTIVATIONS = {"swish": "silu"}  # the others have the same names


class MarianConfig(Record):
    """The values of a config.json of MarianMT on which results depend. Others are ignored."""

    model_config = ConfigDict(extra="ignore")

    vocab_size: int
    decoder_vocab_size: int | None = None
    d_model: int
    encoder_layers: int
    decoder_layers: int
    encoder_attention_heads: int
    decoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_ffn_dim: int
    max_position_embeddings: int
    activation_function: Literal["relu", "gelu", "swish", "silu"]
    scale_embedding: bool
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    pad_token_id: int
    eos_token_id: int
    decoder_start_token_id: int
    forced_bos_token_id: None = None
    # Values of folders of earlier versions, which have no effect on MarianMT unless they are these.
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[True] = True

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        pairs = [("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim")]
        if self.share_encoder_decoder_embeddings:
            pairs.append(("vocab_size", "decoder_vocab_size"))
        for one, other in pairs:
            if getattr(self, other) not in (None, getattr(self, one)):
                raise ValueError(f"{other}: expected {getattr(self, one)}, the value of {one}, got {getattr(self, other)}")
        if self.share_encoder_decoder_embeddings and not self.tie_word_embeddings:
            raise ValueError("tie_word_embeddings: expected True with share_encoder_decoder_embeddings, got False")
        return self

    @property
    def target_rows(self) -> int:
        """The number of rows of the tables of the target."""
        return self.decoder_vocab_size or self.vocab_size

    @property
    def tied(self) -> Literal["none", "target", "all"]:
        """Which tables are one, as `TransformerConfig.tie_embeddings` has it."""
        if self.share_encoder_decoder_embeddings:
            return "all"
        return "target" if self.tie_word_embeddings else "none"

    def to_options(self, source: Vocabulary, target: Vocabulary) -> TransformerConfig:
        """Return the options of a `Transformer` that computes the same."""
        return TransformerConfig(
            source_vocab_size=len(source.pieces),
            target_vocab_size=len(target.pieces),
            model_dim=self.d_model,
            num_heads=self.encoder_attention_heads,
            ff_dim=self.encoder_ffn_dim,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            max_length=self.max_position_embeddings,
            ff_activation=ACTIVATIONS.get(self.activation_function, self.activation_function),
            scale_embeddings=self.scale_embedding,
            tie_embeddings=self.tied,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            ff_dropout=self.activation_dropout,
            norm="post",
            norm_epsilon=1e-5,
            positions="sinusoidal_paper_halves",
            attention_bias=True,
            output_bias=True,
        )


def read_marian(folder: Path, values: Mapping[str, Any]) -> Imported:
    """Read a folder of MarianMT.

    Args:
        folder: with `source.spm`, `target.spm`, `vocab.json` (and `target_vocab.json`, if the sides have vocabularies of their own),
            and weights.
        values: its config.json.

    Raises:
        ValueError: if files or arrays are missing or do not fit, or values are not supported.
    """
    given = MarianConfig(**values)
    source, target = _read_sides(folder, given)
    config = given.to_options(source.vocabulary, target.vocabulary)
    arrays = _arrays(open_arrays(folder), given, config, source.vocabulary, target.vocabulary)
    search, notes = known_settings([values, read_json(folder / GENERATION)], given.max_position_embeddings, [[given.pad_token_id]])
    return Imported(config, arrays, source.model, target.model, "MarianMT", search, notes)


class Side(NamedTuple):
    """The tokens of the source or of the target, and the SentencePiece model that has their ids."""

    vocabulary: Vocabulary
    model: bytes


def _read_sides(folder: Path, given: MarianConfig) -> tuple[Side, Side]:
    """Read both vocabularies, which are one if all tables are, and both SentencePiece models."""
    names = ("vocab.json", "vocab.json" if given.tied == "all" else "target_vocab.json")
    check_files(folder, dict.fromkeys(["source.spm", "target.spm", *names]))
    first, second = (_pieces(folder / name) for name in names)
    source_model, target_model = (parsed_model((folder / name).read_bytes(), str(folder / name)) for name in ("source.spm", "target.spm"))
    special = _special(second)._replace(start=given.decoder_start_token_id)
    _check_target(special, given, folder / names[1])
    own = set(text_pieces(source_model))
    source = arranged(first, given.vocab_size, special if given.tied == "all" else _special(first), lacking=own - set(first))
    target = source if given.tied == "all" else arranged(second, given.target_rows, special)
    tags = [piece for piece in first if piece.startswith(">>") and piece.endswith("<<") and piece not in own]
    return Side(source, sentencepiece_model(source_model, source, tags)), Side(target, sentencepiece_model(target_model, target))


def _pieces(path: Path) -> dict[str, int]:
    """Return the rows of the pieces of a vocabulary file.

    Raises:
        ValueError: if it has no special tokens.
    """
    pieces = read_json(path)
    if missing := [name for name in (END, UNKNOWN, PAD) if name not in pieces]:
        raise ValueError(f"vocabulary: expected {END}, {UNKNOWN} and {PAD} in {path}, got none for {', '.join(missing)}.")
    return pieces


def _special(pieces: Mapping[str, int]) -> Special:
    return Special(pad=pieces[PAD], start=pieces[PAD], end=pieces[END], unknown=pieces[UNKNOWN])


def _check_target(special: Special, given: MarianConfig, path: Path) -> None:
    """Refuse a vocabulary whose padding and end are not those that the decoder predicts."""
    rows = {PAD: (given.pad_token_id, special.pad), END: (given.eos_token_id, special.end)}
    if wrong := [f"{name} {wanted}, got {got}" for name, (wanted, got) in rows.items() if wanted != got]:
        raise ValueError(f"vocabulary: expected in {path} the rows of config.json: {'; '.join(wrong)}.")


def _arrays(file: Arrays, given: MarianConfig, config: TransformerConfig, source: Vocabulary, target: Vocabulary) -> dict[str, np.ndarray]:
    """Return all weights of the model, read from a file.

    Raises:
        ValueError: if the arrays of the file are not those of the configuration.
    """
    check_sizes(config, file.shapes, file.path)
    wanted = {**layer_arrays(config), **_tables(file, given, source, target)}
    _check_shapes(file, given, {array.name: array.shape for array in wanted.values()})
    _check_positions(file, config)
    found = {name: array.convert(file.read(array.name)) for name, array in wanted.items()}
    bias = file.read(BIAS)[0] if BIAS in file.shapes else np.zeros(given.target_rows, "float32")
    return {**found, "output/bias": target.bias(bias)}


def _tables(file: Arrays, given: MarianConfig, source: Vocabulary, target: Vocabulary) -> dict[str, Array]:
    """Return the tables over the vocabularies. A table that is shared has one or several of its names in a file."""

    def array(name: str, rows: int, side: Vocabulary) -> Array:
        same = ONE_TABLE[given.tied]
        return Array(one_of(file, same) if name in same else name, (rows, given.d_model), lambda table: table[side.rows])

    tables = {"source_embedding/embeddings": array(SOURCE, given.vocab_size, source)}
    if given.tied != "all":
        tables["target_embedding/embeddings"] = array(TARGET, given.target_rows, target)
    if given.tied == "none":
        output = array(OUTPUT, given.target_rows, target)
        tables["output/kernel"] = output._replace(convert=lambda table: table[target.rows].T)
    return tables


def _check_shapes(file: Arrays, given: MarianConfig, wanted: dict[str, tuple[int, ...]]) -> None:
    optional = {BIAS: (1, given.target_rows)} if BIAS in file.shapes else {}
    others = {*POSITIONS, *ONE_TABLE[given.tied]} - set(wanted)  # positions are checked apart, and other names of a table are equal
    there = {name: shape for name, shape in file.shapes.items() if name not in others}
    if problems := array_problems({**wanted, **optional}, there, most=20):
        raise ValueError(f"folder: expected the arrays of its config.json in {file.path}, got {problems}")


def _check_positions(file: Arrays, config: TransformerConfig) -> None:
    """Refuse a file with other positions than the family's."""
    table = position_table(config.positions, config.max_length, config.model_dim)
    for name in POSITIONS:
        if name in file.shapes and not (file.shapes[name] == table.shape and np.allclose(file.read(name), table, atol=1e-3)):
            raise ValueError(f"folder: expected the sinusoids of MarianMT as '{name}' of {file.path}, got another table.")
