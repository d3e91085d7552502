"""Subword regularization (arXiv:1804.10959): a text cut into pieces otherwise each time."""

import bisect
import functools
from collections.abc import Sequence

import numpy as np

WAYS = 64  # of cutting a word, the most probable; the paper's l
WORD_MARK = "\u2581"
CACHED_WORDS = 2**18


class SubwordSampler:
    """Draw how texts are cut, from a unigram model.

    A way x to cut a text is drawn with a probability that is proportional to p(x) ** power (section 3.2). Pieces do not reach
    over the ends of words, so each word is drawn by itself. SentencePiece can draw too, but otherwise in each process, whatever
    its seed.

    Args:
        processor: of SentencePiece, with a unigram model.
        power: alpha, above 0; the smaller, the more a text varies.
    """

    def __init__(self, processor, power: float):
        self._processor = processor
        self.power = power
        self._ways = functools.lru_cache(CACHED_WORDS)(self._find_ways)

    def encode(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """Return ids of each text, which `seed` decides."""
        draw = np.random.default_rng(seed)
        return [self._draw([word for word in text.split(WORD_MARK) if word], draw) for text in self._processor.normalize(list(texts))]

    def _draw(self, words: list[str], draw: np.random.Generator) -> list[int]:
        ids = []
        for word, number in zip(words, draw.random(len(words)).tolist(), strict=True):
            ways, ends = self._ways(word)
            ids += ways[bisect.bisect_left(ends, number, hi=len(ways) - 1)]
        return ids

    def _find_ways(self, word: str) -> tuple[list[list[int]], list[float]]:
        """Return the ways to cut a word, and the sum of the probabilities up to each."""
        ways = self._processor.nbest_encode_as_ids(word, WAYS)
        scores = self.power * np.array([sum(map(self._processor.get_score, way)) for way in ways])
        weights = np.exp(scores - scores.max())
        return ways, np.cumsum(weights / weights.sum()).tolist()
