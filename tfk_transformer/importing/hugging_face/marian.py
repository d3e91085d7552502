"""MarianMT, the family of the opus-mt models, in Hugging Face's layout.

MarianMT has BART's layers with layer norms after the residual connections, and sinusoidal
positions. The decoder starts with the padding token, so the start token has the row of padding
here. Padding is never predicted.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID, START_ID
from tfk_transformer.importing.hugging_face.bart_config import BartConfig, common_values
from tfk_transformer.importing.hugging_face.bart_layers import (
    LOGITS_BIAS,
    OUTPUT_TABLE,
    POSITION_TABLES,
    SHARED_TABLE,
    SOURCE_TABLE,
    TARGET_TABLE,
    Array,
    check_sinusoids,
    layers_of,
    read_arrays,
)
from tfk_transformer.importing.hugging_face.model_folder import (
    GENERATION,
    TOKENIZER_CONFIG,
    Arrays,
    check_model_files,
    open_arrays,
    read_optional_json,
    read_pieces,
    shared_array_name,
)
from tfk_transformer.importing.hugging_face.search_notes import convert_search_settings
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages, check_no_languages
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    PAD_PIECE,
    UNKNOWN_PIECE,
    SideTokenizer,
    SpecialRows,
    Vocabulary,
    check_special_rows,
    read_sentencepiece,
    remap_vocabulary,
    sentencepiece_model,
    special_rows,
    text_pieces,
)
from tfk_transformer.layers.position_encoding import position_table

# The names that a shared table may have, by `tie_embeddings`.
SHARED_NAMES = {
    "all": (SHARED_TABLE, SOURCE_TABLE, TARGET_TABLE, OUTPUT_TABLE),
    "target": (TARGET_TABLE, OUTPUT_TABLE),
    "none": (),
}


class MarianConfig(BartConfig):
    """The values of a config.json of MarianMT on which results depend."""

    decoder_vocab_size: int | None = None
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    forced_bos_token_id: None = None
    # Only in folders of earlier versions. Other values would select another architecture.
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[True] = True

    def _problems(self, *equal_values: tuple[str, str]) -> Iterator[str]:
        shared = self.share_encoder_decoder_embeddings
        sizes = [("vocab_size", "decoder_vocab_size")] if shared else []
        yield from super()._problems(*equal_values, *sizes)
        if shared and not self.tie_word_embeddings:
            yield (
                "tie_word_embeddings: expected True with share_encoder_decoder_embeddings, got "
                "False"
            )

    @property
    def target_rows(self) -> int:
        """The number of rows of the target's tables."""
        return self.decoder_vocab_size or self.vocab_size

    @property
    def tie_embeddings(self) -> Literal["none", "target", "all"]:
        """The value of `TransformerConfig.tie_embeddings`: which embedding tables are shared."""
        if self.share_encoder_decoder_embeddings:
            return "all"
        return "target" if self.tie_word_embeddings else "none"

    def to_transformer_config(self, source: Vocabulary, target: Vocabulary) -> TransformerConfig:
        """Return the configuration of an equivalent `Transformer`."""
        return TransformerConfig(
            source_vocab_size=len(source.pieces),
            target_vocab_size=len(target.pieces),
            max_length=self.max_position_embeddings,
            tie_embeddings=self.tie_embeddings,
            norm="post",
            positions="sinusoidal_paper_halves",
            **self.common_options(),
        )

    @classmethod
    def from_transformer_config(cls, config: TransformerConfig) -> Self:
        """Return the values for a `Transformer`, whose ids are the rows of the tables.

        This is the reverse of `to_transformer_config`.
        """
        return cls(
            **common_values(config),
            vocab_size=config.source_vocab_size,
            decoder_vocab_size=config.target_vocab_size,
            max_position_embeddings=config.max_length,
            share_encoder_decoder_embeddings=config.tie_embeddings == "all",
            tie_word_embeddings=config.tie_embeddings != "none",
            pad_token_id=PAD_ID,
            eos_token_id=END_ID,
            decoder_start_token_id=START_ID,
        )


def read_marian(folder: Path, values: Mapping[str, Any], languages: Languages) -> Imported:
    """Read a folder of MarianMT.

    Args:
        folder: a folder with `source.spm`, `target.spm`, `vocab.json` (and `target_vocab.json`, if
            the sides have separate vocabularies), and weights.
        values: the content of its config.json.
        languages: must be empty.

    Raises:
        ValueError: if languages are passed, files or arrays are missing or do not fit, or values
            are not supported.
    """
    check_no_languages(languages, "MarianMT")
    hf_config = MarianConfig(**values)
    source, target = _read_sides(folder, hf_config)
    never_predicted = [[hf_config.pad_token_id]]
    if not target.vocabulary.silent[START_ID]:
        never_predicted.append([hf_config.decoder_start_token_id])
    config = hf_config.to_transformer_config(source.vocabulary, target.vocabulary)
    arrays = _read_weights(
        open_arrays(folder), hf_config, config, source.vocabulary, target.vocabulary
    )
    search, notes = convert_search_settings(
        values,
        read_optional_json(folder / GENERATION),
        hf_config.max_position_embeddings,
        never_predicted,
    )
    if added := _added_tokens(folder, {*source.vocabulary.texts, *target.vocabulary.texts}):
        notes += (f"added tokens are not imported, and are text here: {', '.join(added)}",)
    return Imported(config, arrays, source.model, target.model, "MarianMT", search, notes)


def _added_tokens(folder: Path, pieces: Collection[str]) -> list[str]:
    """Return the tokens that were added to the tokenizer, and that its vocabularies lack."""
    decoder = read_optional_json(folder / TOKENIZER_CONFIG).get("added_tokens_decoder")
    entries = decoder.values() if isinstance(decoder, dict) else ()
    contents = [str(entry.get("content")) for entry in entries if isinstance(entry, dict)]
    tokens = dict.fromkeys([*read_optional_json(folder / "added_tokens.json"), *contents])
    return [token for token in tokens if token not in pieces]


def _read_sides(folder: Path, hf_config: MarianConfig) -> tuple[SideTokenizer, SideTokenizer]:
    """Read the vocabulary and the SentencePiece model of both sides.

    The sides share one vocabulary if they share all tables.
    """
    shared = hf_config.tie_embeddings == "all"
    names = ("vocab.json", "vocab.json" if shared else "target_vocab.json")
    check_model_files(folder, dict.fromkeys(["source.spm", "target.spm", *names]))
    source_pieces, target_pieces = (read_pieces(folder / name) for name in names)
    source_model, target_model = (
        read_sentencepiece(folder / name) for name in ("source.spm", "target.spm")
    )
    source_texts = set(text_pieces(source_model))
    start = _dedicated_start(
        target_pieces, hf_config, source_texts | set(text_pieces(target_model))
    )
    special = _special(target_pieces, start)._replace(start=hf_config.decoder_start_token_id)
    check_special_rows(special, hf_config.pad_token_id, hf_config.eos_token_id, folder / names[1])
    source = remap_vocabulary(
        source_pieces,
        hf_config.vocab_size,
        special if shared else _special(source_pieces, start),
        added=source_texts - set(source_pieces),
    )
    target = source if shared else remap_vocabulary(target_pieces, hf_config.target_rows, special)
    tags = [piece for piece in source_pieces if is_tag(piece) and piece not in source_texts]
    return (
        SideTokenizer(source, sentencepiece_model(source_model, source, tags)),
        SideTokenizer(target, sentencepiece_model(target_model, target)),
    )


def is_tag(piece: str) -> bool:
    """Return whether a piece is a language token, for example >>fra<<."""
    return piece.startswith(">>") and piece.endswith("<<")


def _dedicated_start(
    pieces: Mapping[str, int], hf_config: MarianConfig, texts: Collection[str]
) -> str | None:
    """Return the piece that the decoder starts with if it has no other use.

    opus-mt models do not have one: they start with padding.
    """
    used = {END_PIECE, UNKNOWN_PIECE, PAD_PIECE}.union(texts)
    starts = [piece for piece, row in pieces.items() if row == hf_config.decoder_start_token_id]
    return next((piece for piece in starts if piece not in used and not is_tag(piece)), None)


def _special(pieces: Mapping[str, int], start: str | None) -> SpecialRows:
    special = special_rows(pieces)
    if start is None or start not in pieces:
        return special
    return special._replace(start=pieces[start], dedicated_start=True)


def _read_weights(
    file: Arrays,
    hf_config: MarianConfig,
    config: TransformerConfig,
    source: Vocabulary,
    target: Vocabulary,
) -> dict[str, np.ndarray]:
    """Return all weights of the model, read from a file.

    In a file, a shared table has one or several of its names.

    Raises:
        ValueError: if the arrays of the file do not match the configuration.
    """
    shared_names = SHARED_NAMES[hf_config.tie_embeddings]

    def table_array(name: str, rows: int, vocabulary: Vocabulary) -> Array:
        return Array(
            shared_array_name(file, shared_names) if name in shared_names else name,
            (rows, hf_config.d_model),
            lambda table: table[vocabulary.rows],
        )

    target_rows = hf_config.target_rows
    arrays = layers_of(file, config)
    arrays["source_embedding/embeddings"] = table_array(SOURCE_TABLE, hf_config.vocab_size, source)
    if hf_config.tie_embeddings != "all":
        arrays["target_embedding/embeddings"] = table_array(TARGET_TABLE, target_rows, target)
    if hf_config.tie_embeddings == "none":
        output = table_array(OUTPUT_TABLE, target_rows, target)
        arrays["output/kernel"] = output._replace(convert=lambda table: table[target.rows].T)
    # Positions are checked separately, and arrays under other names of a shared table are equal.
    optional = {*POSITION_TABLES, *shared_names}
    bias = Array(LOGITS_BIAS, (1, target_rows), np.ravel)
    weights = read_arrays(file, arrays, optional, target, bias)
    positions = position_table(config.positions, config.max_length, config.model_dim)
    check_sinusoids(file, POSITION_TABLES, positions, "MarianMT")
    return weights
