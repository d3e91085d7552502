"""Vocabularies of other libraries in the order of this project's ids, and SentencePiece models that
have these ids.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID

END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"  # what all families call them
NEVER_PREDICTED = -1e9  # the output bias of tokens that are never predicted
Piece: TypeAlias = ModelProto.SentencePiece
UNIGRAM = 1
TYPES = {UNIGRAM: "unigram", 2: "bpe", 4: "char"}  # of `ModelType`, without words
NEVER_FROM_TEXT = (Piece.CONTROL, Piece.UNKNOWN, Piece.UNUSED)


class Special(NamedTuple):
    """The rows of the special tokens in a family's tables."""

    pad: int
    start: int  # the decoder's first token, in many families also the padding or the end token
    end: int
    unknown: int
    # Whether the start token has a row that no text and no other token uses.
    own_start: bool = False


class Vocabulary(NamedTuple):
    """The tokens of a side by this project's ids: the special ones, the family's others in their
    order, and pieces that it lacks.

    The start token is a token of its own, which may share its row of the tables with another one. A
    piece that the vocabulary lacks has the row of the unknown token.
    """

    pieces: tuple[str, ...]
    rows: np.ndarray  # int (V,): the row of each id in the family's tables
    silent: np.ndarray  # bool (V,): tokens that the family has no row for, or never predicts

    def bias(self, given: np.ndarray) -> np.ndarray:
        """Return the output bias (V,) from the family's, (rows,)."""
        return np.where(self.silent, np.float32(NEVER_PREDICTED), given[self.rows])


def special_rows(pieces: Mapping[str, int]) -> Special:
    """Return the rows of the special tokens. The start token's is that of padding."""
    return Special(pad=pieces[PAD], start=pieces[PAD], end=pieces[END], unknown=pieces[UNKNOWN])


def check_special_rows(special: Special, pad: int, end: int, path: Path) -> None:
    """Refuse a vocabulary whose padding and end are not those of config.json.

    Raises:
        ValueError: with the rows that differ.
    """
    rows = {PAD: (pad, special.pad), END: (end, special.end)}
    if wrong := [
        f"{name} {wanted}, got {got}" for name, (wanted, got) in rows.items() if wanted != got
    ]:
        raise ValueError(
            f"vocabulary: expected in {path} the rows of config.json: {'; '.join(wrong)}."
        )


def arranged(
    pieces: Mapping[str, int],
    rows: int,
    special: Special,
    lacking: Iterable[str] = (),
    never: Collection[int] = (),
) -> Vocabulary:
    """Return a family's vocabulary in the order of this project's ids.

    Args:
        pieces: the row of each piece.
        rows: the number of rows of the family's tables.
        special: the rows of the special tokens.
        lacking: pieces of a SentencePiece model that are not in `pieces`.
        never: rows that are never predicted, besides the start token's.

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
    first = [special.pad, special.start, special.end, special.unknown]
    others = [
        row
        for row in range(rows)
        if row not in (first if special.own_start else (special.pad, special.end, special.unknown))
    ]
    more = sorted(lacking)
    free = next(
        name for name in (f"<s{'_' * n}>" for n in range(len(pieces) + 1)) if name not in pieces
    )
    texts = [names.get(row, f"<row {row}>") for row in [*first, *others]]
    texts[START_ID] = texts[START_ID] if special.own_start else free
    count = len(texts)
    all_rows = np.array([*first, *others, *[special.unknown] * len(more)])
    places = np.arange(len(all_rows))
    silent = (
        (places >= count)
        | np.isin(all_rows, list(never))
        | ((places == START_ID) & (not special.own_start))
    )
    return Vocabulary((*texts, *more), all_rows, silent)


def parsed_model(model: bytes, name: str) -> ModelProto:
    """Return a SentencePiece model as a message.

    Raises:
        ValueError: if the bytes are not one that SentencePiece opens, or it is of another type than
            `TYPES`.
    """
    try:
        proto = ModelProto.FromString(model)
        sentencepiece.SentencePieceProcessor(model_proto=model)
    except DecodeError:
        proto = ModelProto()
    except RuntimeError as error:
        raise ValueError(
            f"tokenizer: expected a SentencePiece model in {name}, got one that SentencePiece "
            f"refuses ({error})."
        ) from None
    if not proto.pieces or proto.trainer_spec.model_type not in TYPES:
        got = "one of another type" if proto.pieces else "something else"
        raise ValueError(
            f"tokenizer: expected a SentencePiece model of type unigram, bpe or char in {name}, "
            f"got {got}."
        )
    return proto


def text_pieces(proto: ModelProto) -> list[str]:
    """Return the pieces of a model that texts can be segmented into."""
    return [piece.piece for piece in proto.pieces if piece.type not in NEVER_FROM_TEXT]


def sentencepiece_model(
    proto: ModelProto, vocabulary: Vocabulary, tags: Sequence[str] = (), lacking: int = Piece.UNUSED
) -> bytes:
    """Return a SentencePiece model that segments texts as `proto` does and has the ids of a
    vocabulary.

    Tokens that `proto` lacks never come from a text. The scores, types and normalization of the
    others stay.

    Args:
        proto: the model.
        vocabulary: the tokens. Those that it does not have and `proto` has become unknown, or are
            segmented further.
        tags: tokens of the vocabulary that become one piece each where a text has them after a
            blank or at its start.
        lacking: the type of the tokens that `proto` lacks: unused ones are decoded, and control
            tokens are not. A model of another type than "unigram" always gets control tokens, since
            it would merge pieces to unused ones first.

    Raises:
        ValueError: if there are tags, and `proto` is not of type "unigram".
    """
    if tags and proto.trainer_spec.model_type != UNIGRAM:
        raise ValueError(
            "tokenizer: expected a model of type unigram for a vocabulary with language tokens, "
            f"got another, and {tags[0]}."
        )
    lacking = lacking if proto.trainer_spec.model_type == UNIGRAM else Piece.CONTROL
    known = {piece.piece: piece for piece in proto.pieces}
    marks = dict(zip(tags, _normalized(proto, tags), strict=True))
    # Only these: a family's self tests have its ids.
    specs = {
        "trainer_spec": proto.trainer_spec,
        "normalizer_spec": proto.normalizer_spec,
        "denormalizer_spec": proto.denormalizer_spec,
    }
    made = ModelProto(**specs)
    for token, text in enumerate(vocabulary.pieces):
        made.pieces.add(**_piece(token, text, known, marks, lacking))
    spec = made.trainer_spec
    spec.vocab_size = len(vocabulary.pieces)
    spec.pad_piece, spec.bos_piece, spec.eos_piece, spec.unk_piece = vocabulary.pieces[
        : UNKNOWN_ID + 1
    ]
    spec.pad_id, spec.bos_id, spec.eos_id, spec.unk_id = PAD_ID, START_ID, END_ID, UNKNOWN_ID
    return bytes(made.SerializeToString())


def _piece(
    token: int, text: str, known: Mapping[str, Piece], marks: Mapping[str, str], lacking: int
) -> dict[str, object]:
    if token <= UNKNOWN_ID:
        return {
            "piece": text,
            "score": 0.0,
            "type": Piece.UNKNOWN if token == UNKNOWN_ID else Piece.CONTROL,
        }
    # All other scores are log-probabilities, so the best segmentation has this piece.
    if text in marks:
        return {"piece": marks[text], "score": 0.0, "type": Piece.NORMAL}
    if text not in known:
        return {"piece": text, "score": 0.0, "type": lacking}
    kept = known[text]
    return {
        "piece": text,
        "score": kept.score,
        "type": Piece.CONTROL if kept.type == Piece.UNKNOWN else kept.type,
    }


def _normalized(proto: ModelProto, texts: Sequence[str]) -> list[str]:
    """Return texts as a model normalizes them, with its mark of a word's start."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    return [processor.normalize(text) for text in texts]
