"""Conversion of vocabularies and SentencePiece models of other libraries to this project's ids."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID

# The names of the special tokens in all families.
END_PIECE = "</s>"
UNKNOWN_PIECE = "<unk>"
PAD_PIECE = "<pad>"
NEVER_PREDICTED = -1e9  # the output bias of tokens that are never predicted
Piece: TypeAlias = ModelProto.SentencePiece
UNIGRAM = 1
TYPES = {UNIGRAM: "unigram", 2: "bpe", 4: "char"}  # supported values of `ModelType`
NEVER_FROM_TEXT = (Piece.CONTROL, Piece.UNKNOWN, Piece.UNUSED)


class SpecialRows(NamedTuple):
    """The rows of the special tokens in a family's tables."""

    pad: int
    start: int  # of the decoder's first token; often the row of the padding or the end token
    end: int
    unknown: int
    dedicated_start: bool = False  # whether no text and no other token uses the start token's row


class Vocabulary(NamedTuple):
    """The tokens of a side by this project's ids.

    The order is: the special tokens, the family's other tokens in the family's order, and pieces of
    the SentencePiece model that the family's vocabulary lacks.

    The start token has a dedicated id, even if it shares its row of the tables with another
    token. A piece that the vocabulary lacks has the row of the unknown token.
    """

    pieces: tuple[str, ...]
    rows: np.ndarray  # int (V,): the row of each id in the family's tables
    silent: np.ndarray  # bool (V,): tokens that the family never predicts or has no row for

    def bias(self, family_bias: np.ndarray) -> np.ndarray:
        """Return the output bias (V,), from the bias of the family's rows (rows,)."""
        return np.where(self.silent, np.float32(NEVER_PREDICTED), family_bias[self.rows])


class SideTokenizer(NamedTuple):
    """The tokens of one side, and a SentencePiece model with their ids."""

    vocabulary: Vocabulary
    model: bytes


def special_rows(pieces: Mapping[str, int]) -> SpecialRows:
    """Return the rows of the special tokens. The start token has the row of padding."""
    return SpecialRows(
        pad=pieces[PAD_PIECE],
        start=pieces[PAD_PIECE],
        end=pieces[END_PIECE],
        unknown=pieces[UNKNOWN_PIECE],
    )


def check_special_rows(special: SpecialRows, pad: int, end: int, path: Path) -> None:
    """Refuse a vocabulary whose padding and end tokens have other rows than in config.json.

    Raises:
        ValueError: with the rows that differ.
    """
    rows = ((PAD_PIECE, pad, special.pad), (END_PIECE, end, special.end))
    if wrong := [
        f"{name} {expected}, got {row}" for name, expected, row in rows if expected != row
    ]:
        raise ValueError(
            f"vocabulary: expected in {path} the rows of config.json: {'; '.join(wrong)}."
        )


def remap_vocabulary(
    pieces: Mapping[str, int],
    rows: int,
    special: SpecialRows,
    added: Iterable[str] = (),
    never_predicted: Collection[int] = (),
) -> Vocabulary:
    """Return a family's vocabulary in the order of this project's ids.

    Args:
        pieces: the row of each piece.
        rows: the number of rows of the family's tables.
        special: the rows of the special tokens.
        added: pieces of the SentencePiece model that are not in `pieces`.
        never_predicted: rows that are never predicted, in addition to the start token's.

    Raises:
        ValueError: if two pieces have one row, or a row is outside the tables.
    """
    names: dict[int, str] = {}
    for piece, row in pieces.items():
        if type(row) is not int or not 0 <= row < rows:
            raise ValueError(
                f"vocabulary: expected a row of its own below {rows:,} for each piece, got "
                f"{row!r} for '{piece}'."
            )
        if names.setdefault(row, piece) != piece:
            raise ValueError(
                f"vocabulary: expected a row of its own below {rows:,} for each piece, got {row} "
                f"for '{names[row]}' and for '{piece}'."
            )
    first_rows = [special.pad, special.start, special.end, special.unknown]
    moved = first_rows if special.dedicated_start else (special.pad, special.end, special.unknown)
    family_rows = [*first_rows, *(row for row in range(rows) if row not in moved)]
    texts = [names.get(row, f"<row {row}>") for row in family_rows]
    if not special.dedicated_start:
        candidates = (f"<s{'_' * n}>" for n in range(len(pieces) + 1))
        texts[START_ID] = next(name for name in candidates if name not in pieces)
    extra_texts = sorted(added)
    all_rows = np.array([*family_rows, *[special.unknown] * len(extra_texts)])
    silent = np.isin(all_rows, list(never_predicted))
    silent[len(texts) :] = True
    silent[START_ID] |= not special.dedicated_start
    return Vocabulary((*texts, *extra_texts), all_rows, silent)


def parse_sentencepiece(model: bytes, name: str) -> ModelProto:
    """Return a SentencePiece model as a protocol buffer message.

    Raises:
        ValueError: if SentencePiece does not load the bytes, or the model's type is not in `TYPES`.
    """
    try:
        proto = ModelProto.FromString(model)
        sentencepiece.SentencePieceProcessor(model_proto=model)
    except (DecodeError, RuntimeError) as error:
        raise ValueError(
            f"tokenizer: expected a SentencePiece model in {name}, got a file that SentencePiece "
            f"does not load ({error})."
        ) from None
    model_type = proto.trainer_spec.model_type
    if not proto.pieces or model_type not in TYPES:
        name_of_type = TrainerSpec.ModelType.Name(model_type).lower()
        got = f"type {name_of_type}" if proto.pieces else "a model without pieces"
        raise ValueError(
            f"tokenizer: expected a SentencePiece model of type unigram, bpe or char in {name}, "
            f"got {got}."
        )
    return proto


def text_pieces(proto: ModelProto) -> list[str]:
    """Return the pieces of a model that texts can be segmented into."""
    return [piece.piece for piece in proto.pieces if piece.type not in NEVER_FROM_TEXT]


def sentencepiece_model(
    proto: ModelProto,
    vocabulary: Vocabulary,
    tags: Sequence[str] = (),
    missing_type: int = Piece.UNUSED,
) -> bytes:
    """Return a SentencePiece model that segments like `proto` and has the ids of a vocabulary.

    Texts are never segmented into tokens that `proto` lacks. The scores and types of the other
    tokens and the normalization stay.

    Args:
        proto: the model.
        vocabulary: the tokens. Pieces of `proto` that are not in the vocabulary become unknown, or
            are segmented further.
        tags: tokens of the vocabulary that become one piece each where a text has them after a
            blank or at its start.
        missing_type: the type of the tokens that `proto` lacks. Unused tokens are decoded, and
            control tokens are not. Control tokens are always used in a model of another type than
            "unigram", which would merge pieces to unused ones first.

    Raises:
        ValueError: if there are tags, and `proto` is not of type "unigram".
    """
    if tags and proto.trainer_spec.model_type != UNIGRAM:
        raise ValueError(
            "tokenizer: expected a model of type unigram for a vocabulary with language tokens, "
            f"such as {tags[0]}, got type {TYPES[proto.trainer_spec.model_type]}."
        )
    missing_type = missing_type if proto.trainer_spec.model_type == UNIGRAM else Piece.CONTROL
    originals = {piece.piece: piece for piece in proto.pieces}
    # The normalized form of a tag has SentencePiece's mark of the start of a word.
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    tag_pieces = {tag: processor.normalize(tag) for tag in tags}
    # The self tests are left out: they have the family's ids.
    converted = ModelProto(
        trainer_spec=proto.trainer_spec,
        normalizer_spec=proto.normalizer_spec,
        denormalizer_spec=proto.denormalizer_spec,
    )
    for token, text in enumerate(vocabulary.pieces):
        converted.pieces.add(**_piece(token, text, originals, tag_pieces, missing_type))
    special_tokens = TrainerSpec(
        vocab_size=len(vocabulary.pieces),
        pad_id=PAD_ID,
        bos_id=START_ID,
        eos_id=END_ID,
        unk_id=UNKNOWN_ID,
        pad_piece=vocabulary.pieces[PAD_ID],
        bos_piece=vocabulary.pieces[START_ID],
        eos_piece=vocabulary.pieces[END_ID],
        unk_piece=vocabulary.pieces[UNKNOWN_ID],
    )
    converted.trainer_spec.MergeFrom(special_tokens)
    return bytes(converted.SerializeToString())


def _piece(
    token: int,
    text: str,
    originals: Mapping[str, Piece],
    tag_pieces: Mapping[str, str],
    missing_type: int,
) -> dict[str, object]:
    """Return the fields of a token's piece."""
    if token <= UNKNOWN_ID:
        return {
            "piece": text,
            "score": 0.0,
            "type": Piece.UNKNOWN if token == UNKNOWN_ID else Piece.CONTROL,
        }
    # All other scores are log-probabilities, so the best segmentation has this piece.
    if text in tag_pieces:
        return {"piece": tag_pieces[text], "score": 0.0, "type": Piece.NORMAL}
    if text not in originals:
        return {"piece": text, "score": 0.0, "type": missing_type}
    original = originals[text]
    return {
        "piece": text,
        "score": original.score,
        "type": Piece.CONTROL if original.type == Piece.UNKNOWN else original.type,
    }
