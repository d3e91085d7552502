"""Select the pieces of a vocabulary: those that texts use, and those that any text may need."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.trimming.merges import Merges

CHUNK_SIZE = 4096  # texts that are encoded together
HELD_OUT = 10  # every tenth text is held out for the check
MAX_HELD_OUT = 10_000
Piece = ModelProto.SentencePiece
# Special tokens, bytes, and a family's language tokens, which exports to its library need.
ALWAYS = (Piece.CONTROL, Piece.UNKNOWN, Piece.USER_DEFINED, Piece.BYTE)
UNNAMED = re.compile(r"<row \d+>")  # a row of a family's tables that has no piece


class Usage(NamedTuple):
    """How often texts use the pieces of a tokenizer."""

    tokenizer: SubwordTokenizer
    counts: np.ndarray  # int64 (V,): the number of occurrences of each id in all texts
    held_out_counts: np.ndarray  # int64 (V,): of them, in the held-out texts
    held_out: Sequence[str]

    def without_held_out(self) -> "Usage":
        """Return the usage in the texts that are not held out."""
        return self._replace(counts=self.counts - self.held_out_counts)


def count_usage(
    texts: Iterable[str], tokenizers: Sequence[SubwordTokenizer], argument: str = "texts"
) -> list[Usage]:
    """Return the usage of the pieces of each tokenizer. The texts are read once.

    Args:
        texts: the texts.
        tokenizers: the tokenizers. Each of them encodes all texts.
        argument: the name of the texts, for error messages.

    Raises:
        ValueError: if the texts have no pieces.
    """
    held_out: list[str] = []
    counts = [np.zeros((2, tokenizer.vocab_size), "int64") for tokenizer in tokenizers]
    for number, chunk in enumerate(chunks(texts)):
        # A chunk continues the numbers of the texts of the earlier chunks.
        first = (HELD_OUT - 1 - number * CHUNK_SIZE) % HELD_OUT
        sample = chunk[first::HELD_OUT][: MAX_HELD_OUT - len(held_out)]
        held_out += sample
        for tokenizer, (in_all, in_held_out) in zip(tokenizers, counts, strict=True):
            in_all += _count(tokenizer, chunk)
            in_held_out += _count(tokenizer, sample)
    if not all(in_all.any() for in_all, _ in counts):
        raise ValueError(
            f"{argument}: expected sentences such as those to translate, got none; pass texts of "
            "all languages to keep."
        )
    return [
        Usage(tokenizer, in_all, in_held_out, held_out)
        for tokenizer, (in_all, in_held_out) in zip(tokenizers, counts, strict=True)
    ]


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts that are not blank, in lists of `CHUNK_SIZE`."""
    iterator = filter(str.strip, texts)
    while chunk := list(itertools.islice(iterator, CHUNK_SIZE)):
        yield chunk


def _count(tokenizer: SubwordTokenizer, texts: Sequence[str]) -> np.ndarray:
    ids = np.fromiter(itertools.chain.from_iterable(tokenizer.encode(texts)), "int64")
    return np.bincount(ids, minlength=tokenizer.vocab_size)


class SharedIds:
    """The ids that the tokenizers of one side, or of both sides, have.

    Args:
        sides: "source", "target" or both.
        tokenizers: the different tokenizers of these sides.
        ids: ids that must be kept, such as the prefixes of a model.
    """

    def __init__(
        self, sides: Sequence[str], tokenizers: Sequence[SubwordTokenizer], ids: Iterable[int]
    ) -> None:
        self.sides = sides
        self.size = tokenizers[0].vocab_size
        self._models = [ModelProto.FromString(tokenizer.model) for tokenizer in tokenizers]
        # Special tokens, bytes, tokens of languages, and all single characters, so that no
        # character becomes unknown.
        self.required = set(ids).union(*map(_required_ids, self._models))

    def check_limit(self, limit: int | None) -> None:
        """Refuse a number of ids that is too small or too large.

        Raises:
            ValueError: with the numbers.
        """
        sides = " and ".join(self.sides)
        if limit is not None and limit > self.size:
            raise ValueError(
                f"vocab_size: expected at most {self.size:,}, the pieces of the {sides}, got "
                f"{limit:,}."
            )
        if limit is not None and limit < len(self.required):
            raise ValueError(
                f"vocab_size: expected at least {len(self.required):,}, the special tokens, tokens "
                f"of languages, bytes and single characters of the {sides}, which must be kept, "
                f"got {limit:,}; pass a larger number."
            )

    def select(self, usages: Sequence[Usage], limit: int | None) -> np.ndarray:
        """Return the ids to keep, int64, ascending.

        Args:
            usages: the usage of each tokenizer.
            limit: the maximum number of ids; the most frequent ones are kept. None: all used ones.
        """
        selected = set(self.required)
        frequency = np.sum([usage.counts for usage in usages], axis=0)
        used = np.flatnonzero(frequency)
        merges = list(map(Merges, self._models))
        for token in used[np.argsort(-frequency[used], kind="stable")].tolist():
            before = (
                of_model.ids_before(token)
                for of_model, usage in zip(merges, usages, strict=True)
                if usage.counts[token]
            )
            additions = {token}.union(*before) - selected
            if len(selected) + len(additions) <= (limit or self.size):
                selected |= additions
        return np.array(sorted(selected))


def _required_ids(model: ModelProto) -> Iterator[int]:
    """Yield the ids of a model that every selection has."""
    tags: set[str] = set()
    if model.trainer_spec.control_symbols:  # where an import puts tokens of languages in texts
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
        tags.update(map(processor.normalize, model.trainer_spec.control_symbols))
    normal = []
    for token, piece in enumerate(model.pieces):
        is_normal = piece.type == Piece.NORMAL
        is_special = piece.type in ALWAYS and not UNNAMED.fullmatch(piece.piece)
        if is_special or piece.piece in tags or (is_normal and len(piece.piece) == 1):
            yield token
        if is_normal:
            normal.append(token)
    if normal and model.trainer_spec.model_type == TrainerSpec.UNIGRAM:
        # The scores of unknown characters and user-defined pieces follow from these two.
        yield min(normal, key=lambda token: model.pieces[token].score)
        yield max(normal, key=lambda token: model.pieces[token].score)
