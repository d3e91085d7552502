"""Subword regularization (arXiv:1804.10959): random segmentations of a text into pieces."""

import itertools
import threading
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import sentencepiece

NBEST_SIZE = 64  # segmentations of a word to draw from, the most probable ones; l in the paper
WORD_MARK = "\u2581"
CACHED_WORDS = 2**18  # with more words, the table of segmentations starts anew


class SubwordSampler:
    """Draw segmentations of texts from a unigram model of SentencePiece.

    A segmentation x is drawn with a probability proportional to p(x) ** power (section 3.2; power
    is alpha in the paper). Pieces do not cross the ends of words, so each word is drawn
    independently. SentencePiece can draw segmentations too, but they differ from process to
    process.

    The segmentations of words are computed when these are drawn for the first time, and kept in
    flat arrays, so that drawing is a few array operations for many words.
    """

    def __init__(self, processor: "sentencepiece.SentencePieceProcessor", power: float):
        self._processor = processor
        self._power = power
        self._log_probs = [processor.get_score(piece) for piece in range(processor.vocab_size())]
        self._lock = threading.Lock()  # arrays cannot grow while NumPy reads them
        self._clear()

    def _clear(self) -> None:
        self._numbers: dict[str, int] = {}
        # Word w has the segmentations _starts[w] to _starts[w + 1].
        self._starts = array("q", [0])
        self._cumulative = array("d")  # the probability up to each segmentation of its word
        # Segmentation s has the ids _id_starts[s] to _id_starts[s + 1].
        self._id_starts = array("q", [0])
        self._ids = array("i")

    def encode(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """Return the ids of each text; the same `seed` gives the same ids."""
        generator = np.random.default_rng(seed)
        words = [
            [word for word in text.split(WORD_MARK) if word]
            for text in self._processor.normalize(list(texts))
        ]
        with self._lock:
            if len(self._numbers) > CACHED_WORDS:
                self._clear()
            ids, word_ends = self._draw(list(itertools.chain.from_iterable(words)), generator)
        word_counts = np.fromiter(map(len, words), np.int64, len(words))
        ends = np.concatenate([[0], word_ends])[np.cumsum(word_counts)].tolist()
        id_list = ids.tolist()
        return [id_list[start:end] for start, end in itertools.pairwise([0, *ends])]

    def _draw(
        self, words: Sequence[str], generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the ids of words, joined to int32 (L,), and the end of each word, int64 (N,)."""
        for word in dict.fromkeys(words):
            if word not in self._numbers:
                self._add(word)
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
        chosen = self._choose(numbers, generator.random(len(words)))
        id_starts = np.frombuffer(self._id_starts, np.int64)
        lengths = id_starts[chosen + 1] - id_starts[chosen]
        ends = np.cumsum(lengths)
        # The position of each id in the result, moved to the segmentation that it comes from.
        positions = np.arange(lengths.sum()) + np.repeat(
            id_starts[chosen] - ends + lengths, lengths
        )
        return np.frombuffer(self._ids, np.int32)[positions], ends

    def _choose(self, words: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        """Return the first segmentation of each word whose cumulative probability is high enough.

        It reaches the threshold, or is the last one: a binary search for all words at once.
        """
        starts = np.frombuffer(self._starts, np.int64)
        cumulative = np.frombuffer(self._cumulative, np.float64)
        first, last = starts[words], starts[words + 1] - 1
        while (searching := first < last).any():
            middle = (first + last) // 2
            below = cumulative[middle] < thresholds
            first = np.where(searching & below, middle + 1, first)
            last = np.where(searching & ~below, middle, last)
        return first

    def _add(self, word: str) -> None:
        """Compute the segmentations of a word."""
        segmentations = self._processor.nbest_encode_as_ids(word, NBEST_SIZE)
        log_probs = [sum(map(self._log_probs.__getitem__, ids)) for ids in segmentations]
        scores = self._power * np.array(log_probs)
        weights = np.exp(scores - scores.max())
        self._cumulative.extend(np.cumsum(weights / weights.sum()).tolist())
        for ids in segmentations:
            self._ids.extend(ids)
            self._id_starts.append(len(self._ids))
        self._numbers[word] = len(self._numbers)
        self._starts.append(len(self._cumulative))
