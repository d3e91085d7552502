"""Subword regularization (arXiv:1804.10959): the segmentation of a text into pieces is drawn anew
each time.
"""

import bisect
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import sentencepiece

WAYS = 64  # the most probable segmentations of a word; l in the paper
WORD_MARK = "\u2581"
CACHED_WORDS = 2**18


class SubwordSampler:
    """Draw segmentations of texts from a unigram model.

    A segmentation x is drawn with a probability proportional to p(x) ** power (section 3.2). Pieces
    do not extend over the ends of words, so that each word is drawn independently. SentencePiece
    can draw segmentations too, but not reproducibly: they differ from process to process.

    Args:
        processor: a SentencePiece processor with a unigram model.
        power: alpha in the paper, above 0. The smaller it is, the more the segmentations vary.
    """

    def __init__(self, processor: "sentencepiece.SentencePieceProcessor", power: float):
        self._processor = processor
        self.power = power
        self._ways = functools.lru_cache(CACHED_WORDS)(self._find_ways)

    def encode(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """Return the ids of each text; the same `seed` gives the same ids."""
        draw = np.random.default_rng(seed)
        return [
            self._draw([word for word in text.split(WORD_MARK) if word], draw)
            for text in self._processor.normalize(list(texts))
        ]

    def _draw(self, words: list[str], draw: np.random.Generator) -> list[int]:
        ids: list[int] = []
        for word, number in zip(words, draw.random(len(words)).tolist(), strict=True):
            ways, ends = self._ways(word)
            ids += ways[bisect.bisect_left(ends, number, hi=len(ways) - 1)]
        return ids

    def _find_ways(self, word: str) -> tuple[list[list[int]], list[float]]:
        """Return the segmentations of a word, and the cumulative probability up to each."""
        ways = self._processor.nbest_encode_as_ids(word, WAYS)
        scores = self.power * np.array([sum(map(self._processor.get_score, way)) for way in ways])
        weights = np.exp(scores - scores.max())
        return ways, np.cumsum(weights / weights.sum()).tolist()
