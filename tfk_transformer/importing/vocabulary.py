"""Conversion of vocabularies and SentencePiece models of other libraries to this project's ids."""

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.small_files import one_line_error, read_small_file
from tfk_transformer.config.words import shorten
from tfk_transformer.constants import START_ID, UNKNOWN_ID
from tfk_transformer.tokenizers.subword_tokenizer import MAX_SENTENCEPIECE_BYTES, load_sentencepiece
from tfk_transformer.tokenizers.token_vocabulary import name_special_pieces

# The names of the special tokens in all families.
END_PIECE = "</s>"
UNKNOWN_PIECE = "<unk>"
PAD_PIECE = "<pad>"
WORD_MARK = "\u2581"  # of SentencePiece, at the start of a word
MAX_ROWS = 2**20  # four times the largest vocabulary of the supported families
NEVER_PREDICTED = -1e9  # the output bias of tokens that are never predicted
Piece: TypeAlias = ModelProto.SentencePiece
UNIGRAM = 1
TYPES = {UNIGRAM: "unigram", 2: "bpe", 3: "word", 4: "char"}  # values of `ModelType`
NEVER_FROM_TEXT = (Piece.CONTROL, Piece.UNKNOWN, Piece.UNUSED)


class SpecialRows(NamedTuple):
    """The rows of the special tokens in a family's tables."""

    pad: int
    start: int  # of the decoder's first token; often the row of the padding or the end token
    end: int
    unknown: int
    dedicated_start: bool = False  # whether no text and no other token uses the start token's row

    @classmethod
    def of(cls, pieces: Mapping[str, int]) -> Self:
        """Return the rows of the special tokens. The start token has the row of padding."""
        pad = pieces[PAD_PIECE]
        return cls(pad, start=pad, end=pieces[END_PIECE], unknown=pieces[UNKNOWN_PIECE])

    def check(self, pad: int, end: int, path: Path) -> None:
        """Refuse a vocabulary whose padding and end tokens have other rows than in config.json."""
        rows = ((PAD_PIECE, pad, self.pad), (END_PIECE, end, self.end))
        if wrong := [
            f"{name} {expected}, got {row}" for name, expected, row in rows if expected != row
        ]:
            raise ValueError(
                f"vocabulary: expected in {path} the rows of config.json: {'; '.join(wrong)}."
            )


class Vocabulary(NamedTuple):
    """The tokens of a side by this project's ids.

    The order is: the special tokens, the family's other tokens in the family's order, and pieces of
    the SentencePiece model that the family lacks, which have the row of the unknown token. The
    start token has a dedicated id, even if it shares its row with another token.
    """

    pieces: tuple[str, ...]
    rows: np.ndarray  # int (V,): the row of each id in the family's tables
    silent: np.ndarray  # bool (V,): tokens that the family never predicts or has no row for
    texts: frozenset[str]  # the family's pieces that stand for text, special tokens included

    @classmethod
    def remapped(
        cls,
        pieces: Mapping[str, int],
        rows: int,
        special: SpecialRows,
        added: Iterable[str] = (),
        never_predicted: Collection[int] = (),
    ) -> Self:
        """Return a family's vocabulary in the order of this project's ids.

        `rows` is the number of rows of its tables. Only the SentencePiece model has the pieces
        `added`. No translation has the start token and the rows `never_predicted`.
        """
        names = _checked_names(pieces, rows, special)
        first_rows = [special.pad, special.start, special.end, special.unknown]
        moved = {special.pad, special.end, special.unknown}
        moved |= {special.start} if special.dedicated_start else set()
        family_rows = [*first_rows, *(row for row in range(rows) if row not in moved)]
        texts = [names.get(row, f"<row {row}>") for row in family_rows]
        if not special.dedicated_start:
            texts[START_ID] = unused_name("s", pieces)
        extra_texts = sorted(added)
        all_rows = np.array([*family_rows, *[special.unknown] * len(extra_texts)])
        silent = np.isin(all_rows, list(never_predicted))
        silent[len(texts) :] = True
        silent[START_ID] |= not special.dedicated_start
        named = frozenset(piece for piece, row in pieces.items() if row not in never_predicted)
        return cls((*texts, *extra_texts), all_rows, silent, named)

    def take(self, table: np.ndarray) -> np.ndarray:
        """Return the rows (V, ...) of a family's table (rows, ...); rows that it lacks are 0."""
        if (missing := int(self.rows.max()) + 1 - len(table)) > 0:
            table = np.pad(table, [(0, missing), *[(0, 0)] * (table.ndim - 1)])
        return table[self.rows]

    def bias(self, family_bias: np.ndarray) -> np.ndarray:
        """Return the output bias (V,) from the bias of the family's rows (rows,)."""
        return np.where(self.silent, np.float32(NEVER_PREDICTED), self.take(family_bias))

    def id_of(self, row: int) -> int:
        """Return the id of a row, other than the start token, which may share it."""
        return int(np.flatnonzero(self.rows == row)[-1])

    def sentencepiece_model(self, proto: ModelProto, tags: Sequence[str] = ()) -> bytes:
        """Return a SentencePiece model that segments like `proto` and has this vocabulary's ids.

        Scores, types and the normalization stay. Tokens that `proto` lacks are decoded if they are
        text, but texts are only segmented into those of characters that `proto` lacks: a family
        looks up such characters in its vocabulary, too. Pieces that the vocabulary lacks become
        unknown, or are segmented further.

        Tags are tokens that become one piece each where a text has them after a blank or at its
        start. They need a model of type "unigram".
        """
        if tags and proto.trainer_spec.model_type != UNIGRAM:
            raise ValueError(
                "tokenizer: expected a model of type unigram for a vocabulary with language "
                f"tokens, such as {tags[0]}, got type {TYPES[proto.trainer_spec.model_type]}."
            )
        # The self tests are left out: they have the family's ids.
        converted = ModelProto(
            trainer_spec=proto.trainer_spec,
            normalizer_spec=proto.normalizer_spec,
            denormalizer_spec=proto.denormalizer_spec,
        )
        converted.pieces.extend(_pieces(proto, self, _tag_pieces(proto, tags)))
        trainer = converted.trainer_spec
        trainer.vocab_size = len(self.pieces)
        name_special_pieces(trainer, self.pieces)
        trainer.control_symbols[:] = tags  # in the family's spelling, for exports
        return bytes(converted.SerializeToString())


# The tokens of a side, and a SentencePiece model with their ids.
Side: TypeAlias = tuple[Vocabulary, bytes]


def first_rows(pieces: Sequence[str]) -> dict[str, int]:
    """Return the row of each piece, the first one if there are several."""
    return {piece: row for row, piece in reversed([*enumerate(pieces)])}


def _checked_names(pieces: Mapping[str, int], rows: int, special: SpecialRows) -> dict[int, str]:
    """Return the piece of each row, which must be in the tables and have one piece."""
    if rows > MAX_ROWS:
        raise ValueError(
            f"vocabulary: expected tables of at most {MAX_ROWS:,} rows, got {shorten(str(rows))}."
        )
    names: dict[int, str] = {}
    for piece, row in pieces.items():
        if type(row) is not int or not 0 <= row < rows:
            got = f"{shorten(repr(row))} for '{shorten(piece)}'"
        elif names.setdefault(row, piece) != piece:
            got = f"{row} for '{shorten(names[row])}' and for '{shorten(piece)}'"
        else:
            continue
        raise ValueError(
            f"vocabulary: expected a row of its own below {rows:,} for each piece, got {got}."
        )
    if outside := [row for row in special[:4] if not 0 <= row < rows]:
        raise ValueError(
            f"vocabulary: expected rows of special tokens below {rows:,}, got "
            f"{', '.join(shorten(str(row)) for row in outside)}."
        )
    return names


def unused_name(stem: str, pieces: Collection[str]) -> str:
    """Return a name such as <s>, <s_> or <s__> that no piece has."""
    names = (f"<{stem}{'_' * n}>" for n in range(len(pieces) + 1))
    return next(name for name in names if name not in pieces)


def parse_sentencepiece(model: bytes, name: str) -> ModelProto:
    """Return a SentencePiece model with pieces as a protocol buffer message."""
    with one_line_error(
        f"tokenizer: expected a SentencePiece model in {name}, got a file that SentencePiece does "
        "not load (",
        ").",
    ):
        load_sentencepiece(model)
        proto = ModelProto.FromString(model)
        if not proto.pieces:
            raise ValueError("it has no pieces")
    return proto


def read_sentencepiece(path: Path) -> ModelProto:
    """Return the SentencePiece model in a file; see `parse_sentencepiece`."""
    return parse_sentencepiece(read_small_file(path, MAX_SENTENCEPIECE_BYTES), str(path))


def check_vocab(vocab: Sequence[Path], counts: Collection[int], addition: str = "") -> None:
    """Refuse missing SentencePiece models, and other numbers of them than `counts`."""
    missing = [str(path) for path in vocab if not path.is_file()]
    if missing or len(vocab) not in counts:
        got = f"no {', '.join(missing)}" if len(vocab) in counts else f"{len(vocab)} files"
        raise ValueError(
            "vocab: expected one SentencePiece model for both sides, or one for the source and "
            f"one for the target{addition}, got {got}."
        )


def text_pieces(proto: ModelProto) -> list[str]:
    """Return the pieces of a model that texts can be segmented into."""
    return [piece.piece for piece in proto.pieces if piece.type not in NEVER_FROM_TEXT]


def is_tag(piece: str) -> bool:
    """Return whether a piece is a language token, for example >>fra<<."""
    return piece.startswith(">>") and piece.endswith("<<")


def tags_of(pieces: Iterable[str], proto: ModelProto) -> list[str]:
    """Return the language tokens of a vocabulary that a SentencePiece model lacks."""
    texts = set(text_pieces(proto))
    return [piece for piece in pieces if is_tag(piece) and piece not in texts]


def _tag_pieces(proto: ModelProto, tags: Sequence[str]) -> dict[str, str]:
    """Return the normalized form of each tag, with the mark of the start of a word."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    tag_pieces: dict[str, str] = {}
    for tag in tags:
        piece = processor.normalize(tag)
        if same := [other for other, form in tag_pieces.items() if form == piece]:
            raise ValueError(
                "tokenizer: expected language tokens that differ after normalization, got "
                f"{same[0]} and {tag}, which the SentencePiece model both reads as {piece}."
            )
        tag_pieces[tag] = piece
    return tag_pieces


def _pieces(
    proto: ModelProto, vocabulary: Vocabulary, tag_pieces: Mapping[str, str]
) -> Iterator[Piece]:
    special = vocabulary.pieces[:UNKNOWN_ID]
    yield from (Piece(piece=text, score=0.0, type=Piece.CONTROL) for text in special)
    yield Piece(piece=vocabulary.pieces[UNKNOWN_ID], score=0.0, type=Piece.UNKNOWN)
    originals = {piece.piece: piece for piece in proto.pieces}
    borrowed = _borrowed_pieces(proto, vocabulary.texts)
    # The score of unknown characters follows from the lowest one, which must not change.
    scores = (piece.score for piece in proto.pieces if piece.type == Piece.NORMAL)
    lowest = min(scores, default=0.0)
    for text in vocabulary.pieces[UNKNOWN_ID + 1 :]:
        if text in tag_pieces:
            # All other scores are log-probabilities, so the best segmentation has this piece.
            yield Piece(piece=tag_pieces[text], score=0.0, type=Piece.NORMAL)
        elif text in originals:
            # A model has only one unknown piece.
            original = originals[text]
            is_unknown = original.type == Piece.UNKNOWN
            piece_type = Piece.CONTROL if is_unknown else original.type
            yield Piece(piece=text, score=original.score, type=piece_type)
        elif text in borrowed:
            yield Piece(piece=text, score=lowest, type=Piece.NORMAL)
        elif text in vocabulary.texts:
            # Texts are not segmented into unused pieces. Byte pair encoding also merges to them,
            # and splits them again, so they must be the last to merge.
            yield Piece(piece=text, score=lowest - 1, type=Piece.UNUSED)
        else:
            yield Piece(piece=text, score=0.0, type=Piece.CONTROL)


def _borrowed_pieces(proto: ModelProto, texts: Iterable[str]) -> set[str]:
    """Return the texts of only such characters as `proto` lacks, such as an apostrophe.

    Characters of other scripts are left out: a family looks up a run of them, such as a word, as a
    whole, and its vocabulary rarely has it.
    """
    if any(piece.type == Piece.BYTE for piece in proto.pieces):
        return set()
    characters = {character for text in text_pieces(proto) for character in text}
    scripts = {"", *map(_script, characters)}
    lacking = {character for text in texts for character in text} - characters
    lacking = {character for character in lacking if _script(character) in scripts}
    return {text for text in texts if lacking.issuperset(text)}


def _script(character: str) -> str:
    """Return the first word of the name of a letter, mark or digit, such as LATIN, or else ""."""
    is_text = unicodedata.category(character)[0] in "LMN"
    return unicodedata.name(character, "").partition(" ")[0] if is_text else ""
