"""Subword regularization (arXiv:1804.10959): random segmentations of a text into pieces."""

import bisect
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import sentencepiece

NBEST_SIZE = 64  # segmentations of a word to draw from, the most probable ones; l in the paper
WORD_MARK = "\u2581"
CACHED_WORDS = 2**18


class SubwordSampler:
    """Draw segmentations of texts from a unigram model.

    A segmentation x is drawn with a probability proportional to p(x) ** power (section 3.2). Pieces
    do not cross the ends of words, so each word is drawn independently. SentencePiece can draw
    segmentations too, but they differ from process to process.

    Args:
        processor: a SentencePiece processor with a unigram model.
        power: alpha in the paper, above 0. Segmentations vary more if it is smaller.
    """

    def __init__(self, processor: "sentencepiece.SentencePieceProcessor", power: float):
        self._processor = processor
        self.power = power
        self._segmentations = functools.lru_cache(CACHED_WORDS)(self._compute_segmentations)

    def encode(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """Return the ids of each text; the same `seed` gives the same ids."""
        generator = np.random.default_rng(seed)
        return [
            self._draw([word for word in text.split(WORD_MARK) if word], generator)
            for text in self._processor.normalize(list(texts))
        ]

    def _draw(self, words: list[str], generator: np.random.Generator) -> list[int]:
        ids: list[int] = []
        for word, number in zip(words, generator.random(len(words)).tolist(), strict=True):
            segmentations, ends = self._segmentations(word)
            ids += segmentations[bisect.bisect_left(ends, number, hi=len(segmentations) - 1)]
        return ids

    def _compute_segmentations(self, word: str) -> tuple[list[list[int]], list[float]]:
        """Return the segmentations of a word, and the cumulative probability up to each."""
        segmentations = self._processor.nbest_encode_as_ids(word, NBEST_SIZE)
        log_probs = [sum(map(self._processor.get_score, ids)) for ids in segmentations]
        scores = self.power * np.array(log_probs)
        weights = np.exp(scores - scores.max())
        return segmentations, np.cumsum(weights / weights.sum()).tolist()
