"""MarianMT, the family of the opus-mt models, in Hugging Face's layout.

It has BART's layers with norms after the sublayers. The decoder starts with the row of padding.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID, START_ID
from tfk_transformer.importing.hugging_face import bart, model_folder
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    PAD_PIECE,
    UNKNOWN_PIECE,
    Side,
    SpecialRows,
    Vocabulary,
    is_tag,
    read_sentencepiece,
    tags_of,
    text_pieces,
)
from tfk_transformer.text.languages import Languages

FAMILY = "MarianMT"
# The names that a shared table may have, by `tie_embeddings`.
SHARED_NAMES: dict[str, tuple[str, ...]] = {
    "all": bart.TABLE_NAMES,
    "target": (bart.TARGET_TABLE, bart.OUTPUT_TABLE),
    "none": (),
}


class MarianConfig(bart.BartConfig):
    """The values of a config.json of MarianMT on which results depend."""

    family_options = {"norm": "post", "positions": "sinusoidal_paper_halves"}

    decoder_vocab_size: int | None = None
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    forced_bos_token_id: None = None
    # Only in folders of earlier versions. Other values would select another architecture.
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[True] = True

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        shared = self.share_encoder_decoder_embeddings
        if shared and self.decoder_vocab_size not in (None, self.vocab_size):
            yield (
                f"decoder_vocab_size: expected {self.vocab_size}, the value of vocab_size, got "
                f"{self.decoder_vocab_size}"
            )
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
        """The value of `TransformerConfig.tie_embeddings`."""
        if self.share_encoder_decoder_embeddings:
            return "all"
        return "target" if self.tie_word_embeddings else "none"

    @property
    def shared_names(self) -> Sequence[str]:
        """The names of which a shared table has one or several in a file."""
        return SHARED_NAMES[self.tie_embeddings]

    @classmethod
    def from_transformer_config(cls, config: TransformerConfig) -> Self:
        """Return the values for a `Transformer`, whose ids are the rows of the tables."""
        return cls(
            **bart.common_values(config),
            vocab_size=config.source_vocab_size,
            decoder_vocab_size=config.target_vocab_size,
            max_position_embeddings=config.max_length,
            share_encoder_decoder_embeddings=config.has_one_table,
            tie_word_embeddings=config.tie_embeddings != "none",
            pad_token_id=PAD_ID,
            eos_token_id=END_ID,
            decoder_start_token_id=START_ID,
        )


def read_marian(folder: Path, values: Mapping[str, Any], _: Languages) -> Imported:
    """Read a folder of MarianMT, with one pair of languages, or a language token in the text."""
    hf_config = MarianConfig(**values)
    sides = _read_sides(folder, hf_config)
    source, target = (vocabulary for vocabulary, _ in sides)
    never_predicted = [[hf_config.pad_token_id]]
    if not target.silent[START_ID]:
        never_predicted.append([hf_config.decoder_start_token_id])
    tied = hf_config.tie_embeddings
    config = hf_config.to_transformer_config(source, target, tie_embeddings=tied)
    imported = bart.import_folder(
        folder, values, hf_config, config, *sides, FAMILY, never_predicted
    )
    listed = model_folder.read_optional_json(folder / "added_tokens.json")
    tokenizer = model_folder.read_optional_json(folder / model_folder.TOKENIZER_CONFIG)
    decoder = tokenizer.get("added_tokens_decoder")
    entries = decoder.values() if isinstance(decoder, dict) else ()
    contents = [str(entry.get("content")) for entry in entries if isinstance(entry, dict)]
    added = dict.fromkeys([*listed, *contents])
    if lacking := [token for token in added if token not in source.texts | target.texts]:
        note = f"added tokens are not imported, and are text here: {', '.join(lacking)}"
        imported = imported._replace(notes=(*imported.notes, note))
    return imported


def _read_sides(folder: Path, hf_config: MarianConfig) -> tuple[Side, Side]:
    """Read both sides, which share one vocabulary if they share all tables."""
    shared = hf_config.tie_embeddings == "all"
    names = ("vocab.json", "vocab.json" if shared else "target_vocab.json")
    model_folder.check_model_files(folder, dict.fromkeys(["source.spm", "target.spm", *names]))
    source_pieces, target_pieces = (model_folder.read_pieces(folder / name) for name in names)
    source_model, target_model = (
        read_sentencepiece(folder / name) for name in ("source.spm", "target.spm")
    )
    source_texts = set(text_pieces(source_model))
    start_row = hf_config.decoder_start_token_id
    used = {END_PIECE, UNKNOWN_PIECE, PAD_PIECE} | source_texts | set(text_pieces(target_model))
    # The piece that the decoder starts with if it has no other use. opus-mt models do not have one.
    starts = (piece for piece, row in target_pieces.items() if row == start_row)
    start = next((piece for piece in starts if piece not in used and not is_tag(piece)), None)
    special = _special(target_pieces, start)._replace(start=start_row)
    special.check(hf_config.pad_token_id, hf_config.eos_token_id, folder / names[1])
    source = Vocabulary.remapped(
        source_pieces,
        hf_config.vocab_size,
        special if shared else _special(source_pieces, start),
        added=source_texts - set(source_pieces),
    )
    target = source
    if not shared:
        target = Vocabulary.remapped(target_pieces, hf_config.target_rows, special)
    tags = tags_of(source_pieces, source_model)
    return (
        (source, source.sentencepiece_model(source_model, tags)),
        (target, target.sentencepiece_model(target_model)),
    )


def _special(pieces: Mapping[str, int], start: str | None) -> SpecialRows:
    special = SpecialRows.of(pieces)
    if start is None or start not in pieces:
        return special
    return special._replace(start=pieces[start], dedicated_start=True)
