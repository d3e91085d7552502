"""Subword regularization (arXiv:1804.10959): random segmentations of a text into pieces."""

import bisect
import functools
import itertools
from array import array
from collections.abc import Sequence

import numpy as np
import sentencepiece

from tfk_transformer.tokenizers.token_vocabulary import WORD_MARK

NBEST_SIZE = 64  # segmentations of a word to draw from, the most probable ones; l in the paper
CACHED_WORDS = 2**18


class SubwordSampler:
    """Draw segmentations of texts from a unigram model of SentencePiece.

    A segmentation x is drawn with a probability proportional to p(x) ** power (section 3.2; power
    is alpha in the paper). Pieces do not cross the ends of words, so each word is drawn
    independently. SentencePiece can draw segmentations too, but they differ from process to
    process.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, power: float):
        self._processor = processor
        self._power = power
        self._log_probs = [processor.get_score(piece) for piece in range(processor.vocab_size())]
        self._cached_segmentations = functools.lru_cache(CACHED_WORDS)(self._segmentations)

    def encode(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """Return the ids of each text; the same `seed` gives the same ids."""
        words = [
            [word for word in text.split(WORD_MARK) if word]
            for text in self._processor.normalize(list(texts))
        ]
        generator = np.random.default_rng(seed)
        thresholds = iter(generator.random(sum(map(len, words))).tolist())
        return [
            list(itertools.chain.from_iterable(map(self._draw, row, thresholds))) for row in words
        ]

    def _draw(self, word: str, threshold: float) -> "array[int]":
        """Return the ids of the first segmentation whose cumulative probability is high enough.

        It reaches the threshold, or is the last one.
        """
        cumulative, starts, ids = self._cached_segmentations(word)
        chosen = bisect.bisect_left(cumulative, threshold)
        return ids[starts[chosen] : starts[chosen + 1]]

    def _segmentations(self, word: str) -> "tuple[array[float], array[int], array[int]]":
        """Return the probability up to each segmentation of a word but the last, and all ids.

        Segmentation s has the ids from `starts[s]` to `starts[s + 1]`. The arrays need less memory
        than lists.
        """
        segmentations = self._processor.nbest_encode_as_ids(word, NBEST_SIZE)
        log_probs = [sum(map(self._log_probs.__getitem__, ids)) for ids in segmentations]
        scores = self._power * np.array(log_probs)
        weights = np.exp(scores - scores.max())
        cumulative = array("d", np.cumsum(weights / weights.sum())[:-1].tolist())
        starts = array("i", itertools.accumulate(map(len, segmentations), initial=0))
        return cumulative, starts, array("i", itertools.chain.from_iterable(segmentations))
