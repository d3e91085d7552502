"""Select the pieces of a vocabulary: those that texts use, and those that any text may need."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

CHUNK_SIZE = 4096  # texts that are encoded together
HELD_OUT = 10  # every tenth text is held out for the check
MAX_HELD_OUT = 10_000
Piece = ModelProto.SentencePiece
# Special tokens, bytes, and a family's language tokens, which exports to its library need.
ALWAYS = (Piece.CONTROL, Piece.UNKNOWN, Piece.USER_DEFINED, Piece.BYTE)
MERGED = (Piece.NORMAL, Piece.USER_DEFINED, Piece.UNUSED)  # SentencePiece merges to unused pieces
UNNAMED = re.compile(r"<row \d+>")  # a row of a family's tables that has no piece


class Usage:
    """How often texts use the pieces of a tokenizer.

    Attributes:
        counts: int64 (V,), the number of occurrences of each id in all texts.
        held_out_counts: int64 (V,), of them, in the held-out texts.
        held_out: these texts.
    """

    def __init__(self, tokenizer: SubwordTokenizer) -> None:
        self.tokenizer = tokenizer
        self.counts = np.zeros(tokenizer.vocab_size, "int64")
        self.held_out_counts = np.zeros(tokenizer.vocab_size, "int64")
        self.held_out: list[str] = []

    def add(self, texts: Sequence[str], held_out: Sequence[str]) -> None:
        """Count the pieces of texts, of which some are held out."""
        self.counts += self._count(texts)
        self.held_out_counts += self._count(held_out)
        self.held_out += held_out

    def _count(self, texts: Sequence[str]) -> np.ndarray:
        ids = np.fromiter(itertools.chain.from_iterable(self.tokenizer.encode(texts)), "int64")
        return np.bincount(ids, minlength=self.tokenizer.vocab_size)


def count_usage(
    texts: Iterable[str], tokenizers: Sequence[SubwordTokenizer], argument: str = "texts"
) -> list[Usage]:
    """Return the usage of the pieces of each tokenizer, which encodes all texts.

    The texts are read once. `argument` is their name in an error.
    """
    usages = list(map(Usage, tokenizers))
    for number, chunk in enumerate(chunks(texts)):
        # A chunk continues the numbers of the texts of the earlier chunks.
        first = (HELD_OUT - 1 - number * CHUNK_SIZE) % HELD_OUT
        held_out = chunk[first::HELD_OUT][: MAX_HELD_OUT - len(usages[0].held_out)]
        for usage in usages:
            usage.add(chunk, held_out)
    if not all(usage.counts.any() for usage in usages):
        raise ValueError(
            f"{argument}: expected sentences such as those to translate, got none; pass texts of "
            "all languages to keep."
        )
    return usages


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts that are not blank, in lists of `CHUNK_SIZE`."""
    iterator = filter(str.strip, texts)
    while chunk := list(itertools.islice(iterator, CHUNK_SIZE)):
        yield chunk


class SharedIds:
    """The ids that the tokenizers of one side, or of both sides, have.

    `ids` must be kept, such as the prefixes of a model.
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
        """Refuse a number of ids that is too small or too large."""
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

    def select(self, counts: Sequence[np.ndarray], limit: int | None) -> np.ndarray:
        """Return the ids to keep, int64, ascending: at most `limit`, the most frequent ones.

        `counts` are int64 (V,) of each tokenizer, the number of occurrences of each id.
        """
        selected = set(self.required)
        frequency = np.sum(counts, axis=0)
        used = np.flatnonzero(frequency)
        merges = list(map(Merges, self._models))
        for token in used[np.argsort(-frequency[used], kind="stable")].tolist():
            before = (
                of_model.ids_before(token)
                for of_model, of_tokenizer in zip(merges, counts, strict=True)
                if of_tokenizer[token]
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


class Merges:
    """The merges of byte pair encoding (arXiv:1508.07909); other models have none."""

    def __init__(self, model: ModelProto) -> None:
        is_bpe = model.trainer_spec.model_type == TrainerSpec.BPE
        pieces = model.pieces if is_bpe else ()
        self._texts = {
            token: piece.piece for token, piece in enumerate(pieces) if piece.type in MERGED
        }
        self._ids = {text: token for token, text in self._texts.items()}
        self._scores = {text: pieces[token].score for text, token in self._ids.items()}

    def ids_before(self, token: int) -> set[int]:
        """Return the ids of the pieces that are merged on the way to a piece.

        A text is segmented by the same merges as long as it has the pieces of all of them. No merge
        crosses the ends of a piece of the result, so the merges inside it are the merges of the
        piece as a text of its own.
        """
        symbols = list(self._texts.get(token, ""))
        merged = set()
        while len(symbols) > 1:
            pairs = ["".join(pair) for pair in itertools.pairwise(symbols)]
            scores = [self._scores.get(pair, float("-inf")) for pair in pairs]
            position = max(range(len(pairs)), key=scores.__getitem__)  # the first of the best
            if pairs[position] not in self._ids:
                break
            merged.add(self._ids[pairs[position]])
            symbols[position : position + 2] = [pairs[position]]
        return merged - {token}
