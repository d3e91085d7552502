"""MarianMT, the family of the opus-mt models, in Hugging Face's layout.

Its layers are those of BART with norms after the residual connections and sinusoidal positions. The
decoder starts with the padding token, whose row serves the start token here; padding itself is
never predicted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID, START_ID
from tfk_transformer.importing.hugging_face.bart_config import BartConfig, common_values
from tfk_transformer.importing.hugging_face.bart_layers import (
    OUTPUT,
    SHARED,
    SOURCE,
    TARGET,
    Array,
    layers_of,
    read_arrays,
)
from tfk_transformer.importing.hugging_face.model_folder import (
    GENERATION,
    Arrays,
    check_model_files,
    one_of,
    open_arrays,
    read_json,
    read_pieces,
)
from tfk_transformer.importing.hugging_face.search_notes import known_settings
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages, check_no_languages
from tfk_transformer.importing.vocabulary import (
    END,
    PAD,
    UNKNOWN,
    Special,
    Vocabulary,
    arranged,
    check_special_rows,
    parsed_model,
    sentencepiece_model,
    special_rows,
    text_pieces,
)
from tfk_transformer.layers.position_encoding import position_table

MARIAN_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
# Names of one table, by what is tied.
ONE_TABLE = {"all": (SHARED, SOURCE, TARGET, OUTPUT), "target": (TARGET, OUTPUT), "none": ()}


class MarianConfig(BartConfig):
    """The values of a config.json of MarianMT on which results depend."""

    decoder_vocab_size: int | None = None
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    forced_bos_token_id: None = None
    # Values of folders of earlier versions, which have no effect on MarianMT unless they are these.
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[True] = True

    def _equal_values(self) -> Sequence[tuple[str, str]]:
        shared = (
            [("vocab_size", "decoder_vocab_size")] if self.share_encoder_decoder_embeddings else []
        )
        return [*super()._equal_values(), *shared]

    def _problems(self) -> Iterable[str]:
        yield from super()._problems()
        if self.share_encoder_decoder_embeddings and not self.tie_word_embeddings:
            yield (
                "tie_word_embeddings: expected True with share_encoder_decoder_embeddings, got "
                "False"
            )

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
            max_length=self.max_position_embeddings,
            tie_embeddings=self.tied,
            norm="post",
            positions="sinusoidal_paper_halves",
            **self.common_options(),
        )

    @classmethod
    def of_options(cls, config: TransformerConfig) -> Self:
        """Return the values for a `Transformer`, whose ids are the rows of the tables; the reverse
        of `to_options`.
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
        folder: with `source.spm`, `target.spm`, `vocab.json` (and `target_vocab.json`, if the sides
            have vocabularies of their own), and weights.
        values: its config.json.
        languages: none.

    Raises:
        ValueError: if languages are given, files or arrays are missing or do not fit, or values are
            not supported.
    """
    check_no_languages(languages, "MarianMT")
    given = MarianConfig(**values)
    source, target = _read_sides(folder, given)
    never = [
        [given.pad_token_id],
        *([] if target.vocabulary.silent[START_ID] else [[given.decoder_start_token_id]]),
    ]
    config = given.to_options(source.vocabulary, target.vocabulary)
    arrays = _arrays(open_arrays(folder), given, config, source.vocabulary, target.vocabulary)
    search, notes = known_settings(
        [values, read_json(folder / GENERATION)], given.max_position_embeddings, never
    )
    return Imported(config, arrays, source.model, target.model, "MarianMT", search, notes)


class SideTokenizer(NamedTuple):
    """The tokens of the source or of the target, and the SentencePiece model that has their ids."""

    vocabulary: Vocabulary
    model: bytes


def _read_sides(folder: Path, given: MarianConfig) -> tuple[SideTokenizer, SideTokenizer]:
    """Read both vocabularies, which are one if all tables are, and both SentencePiece models."""
    names = ("vocab.json", "vocab.json" if given.tied == "all" else "target_vocab.json")
    check_model_files(folder, dict.fromkeys(["source.spm", "target.spm", *names]))
    first, second = (read_pieces(folder / name) for name in names)
    source_model, target_model = (
        parsed_model((folder / name).read_bytes(), str(folder / name))
        for name in ("source.spm", "target.spm")
    )
    own = set(text_pieces(source_model))
    start = _own_start(second, given, own | set(text_pieces(target_model)))
    special = _special(second, start)._replace(start=given.decoder_start_token_id)
    check_special_rows(special, given.pad_token_id, given.eos_token_id, folder / names[1])
    source = arranged(
        first,
        given.vocab_size,
        special if given.tied == "all" else _special(first, start),
        lacking=own - set(first),
    )
    target = source if given.tied == "all" else arranged(second, given.target_rows, special)
    tags = [piece for piece in first if is_tag(piece) and piece not in own]
    return SideTokenizer(source, sentencepiece_model(source_model, source, tags)), SideTokenizer(
        target, sentencepiece_model(target_model, target)
    )


def is_tag(piece: str) -> bool:
    """Return whether a piece is a language token, such as >>fra<<."""
    return piece.startswith(">>") and piece.endswith("<<")


def _own_start(
    pieces: Mapping[str, int], given: MarianConfig, texts: Collection[str]
) -> str | None:
    """Return the piece that the decoder starts with, if it is for nothing else; opus-mt models
    start with the padding.
    """
    other = {END, UNKNOWN, PAD}.union(texts)
    found = [piece for piece, row in pieces.items() if row == given.decoder_start_token_id]
    return next((piece for piece in found if piece not in other and not is_tag(piece)), None)


def _special(pieces: Mapping[str, int], start: str | None) -> Special:
    special = special_rows(pieces)
    return (
        special._replace(start=pieces[start], own_start=True)
        if start is not None and start in pieces
        else special
    )


def _arrays(
    file: Arrays,
    given: MarianConfig,
    config: TransformerConfig,
    source: Vocabulary,
    target: Vocabulary,
) -> dict[str, np.ndarray]:
    """Return all weights of the model, read from a file.

    Raises:
        ValueError: if the arrays of the file are not those of the configuration.
    """
    wanted = {**layers_of(file, config), **_tables(file, given, source, target)}
    # Positions are checked apart, and other names of a table are equal.
    arrays = read_arrays(
        file, wanted, {*MARIAN_POSITIONS, *ONE_TABLE[given.tied]}, target, given.target_rows
    )
    _check_positions(file, config)
    return arrays


def _tables(
    file: Arrays, given: MarianConfig, source: Vocabulary, target: Vocabulary
) -> dict[str, Array]:
    """Return the tables over the vocabularies. A table that is shared has one or several of its
    names in a file.
    """

    def array(name: str, rows: int, side: Vocabulary) -> Array:
        same = ONE_TABLE[given.tied]
        return Array(
            one_of(file, same) if name in same else name,
            (rows, given.d_model),
            lambda table: table[side.rows],
        )

    tables = {"source_embedding/embeddings": array(SOURCE, given.vocab_size, source)}
    if given.tied != "all":
        tables["target_embedding/embeddings"] = array(TARGET, given.target_rows, target)
    if given.tied == "none":
        output = array(OUTPUT, given.target_rows, target)
        tables["output/kernel"] = output._replace(convert=lambda table: table[target.rows].T)
    return tables


def _check_positions(file: Arrays, config: TransformerConfig) -> None:
    """Refuse a file with other positions than the family's."""
    table = position_table(config.positions, config.max_length, config.model_dim)
    for name in MARIAN_POSITIONS:
        if name in file.shapes and not (
            file.shapes[name] == table.shape and np.allclose(file.read(name), table, atol=1e-3)
        ):
            raise ValueError(
                f"folder: expected the sinusoids of MarianMT as '{name}' of {file.path}, got "
                "another table."
            )
