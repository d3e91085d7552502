"""Hypotheses of a search, and the alignment of their words with the source's, by attention."""

import bisect
import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfk_transformer.text.words import Span, between, piece_spans, word_spans

# The value of a target word without links: a run bridges one such word if the words on both sides
# of it are linked in both directions.
UNLINKED = -0.5
TAKEN = -1e9  # the value of a target word that another element has
NEARNESS = 1e-9  # the weight of the distance from the diagonal, less than any other difference
TURNED = 0.6  # the weight of a gap on the other side of a target word than in the source

Link = tuple[int, int]  # (source word, target word)


class Hypothesis(NamedTuple):
    """One translation of a text. Fields that were not requested are None."""

    text: str
    score: float  # log-probability / length penalty + coverage penalty
    # T pieces; the last one is the end token's, unless the length limit cut the hypothesis.
    tokens: list[str] | None = None
    token_log_probs: list[float] | None = None  # T log-probabilities
    # float32 (L, H, T, S), of the decoder's layers and heads; each row sums to 1.
    attention: np.ndarray | None = None
    # The S pieces attended to: the source; in a decoder-only model, all tokens before the last.
    source_tokens: list[str] | None = None


@dataclass(frozen=True)
class Alignment:
    """The words of a source and of its translation, and the links between them (SimAlign)."""

    source: list[Span]
    target: list[Span]
    # The best one of each row and of each column; one that is both is in the list twice.
    links: list[Link]
    # float64 (target words, source words); None without attention.
    weights: np.ndarray | None = None

    @functools.cached_property
    def _link_array(self) -> np.ndarray:
        return np.array(self.links, "int64").reshape(-1, 2)

    def words(self, first: int, last: int) -> range:
        """Return the indices of the source words that have characters of [first:last]."""
        start = bisect.bisect_right(self.source, first, key=lambda span: span[1])
        return range(start, bisect.bisect_left(self.source, (last, 0)))

    def best_range(
        self, inside: range, first: int, last: int, values: np.ndarray, anchor: str = ""
    ) -> Span:
        """Return the run of target words with most links to the source words `inside`.

        The run is within [first:last], and without any link (last, last). With an `anchor` "start"
        or "end", it begins at `first` or ends at `last`. `values` are UNLINKED for each target
        word, or TAKEN for a word that may not be in the run.
        """
        sources, targets = self._link_array.T
        values = values.copy()
        np.add.at(values, targets[(inside.start <= sources) & (sources < inside.stop)], 1)
        sums = np.concatenate([[0.0], np.cumsum(values[first:last])])
        gains = sums - (0.0 if anchor == "start" else np.minimum.accumulate(sums))
        end = last - first if anchor == "end" else int(np.argmax(gains))
        if gains[end] <= 0:
            return last, last
        start = 0 if anchor == "start" else int(np.argmin(sums[: end + 1]))
        return first + start, first + end

    def best_gap(self, before: int, first: int, last: int) -> int:
        """Return the target index for an insertion that follows the first `before` source words.

        Each link votes for two gaps that are as far from its target word as the insertion is from
        its source word. The gap on the same side as in the source has the larger weight. The other
        one is right where the translation reverses the order. Near words count most.
        """
        sources, targets = self._link_array.T[..., None]  # (links, 1)
        is_before = sources < before
        distances = np.where(is_before, before - sources, sources - before + 1)
        gaps = np.hstack([targets + distances, targets + 1 - distances])
        weights = np.where(is_before, (1.0, TURNED), (TURNED, 1.0)) / distances**2
        fits = (gaps >= first) & (gaps <= last)
        votes = np.zeros(len(self.target) + 1)
        np.add.at(votes, gaps[fits], weights[fits])
        return first + int(np.argmax(votes[first : last + 1])) if votes.any() else last


def align(source: str, translation: Hypothesis) -> Alignment:
    """Return the alignment of a translation whose attention, if any, is float32 (T, S)."""
    target, tokens, source_tokens = translation.text, translation.tokens, translation.source_tokens
    attention = translation.attention
    if attention is None or tokens is None or source_tokens is None:
        return Alignment(word_spans(source), word_spans(target, range(len(target))), [])
    # A decoder-only model attends to its start token, its prompt, and its own tokens.
    first = int(source_tokens[:1] == ["<s>"])
    last = first + len(source_tokens) - (len(tokens) if first else 1)
    source_pieces = piece_spans(source_tokens[first:last], source)
    target_pieces = piece_spans(tokens[:-1], target)
    source_words = word_spans(source, [start for start, _ in source_pieces])
    target_words = word_spans(target, [start for start, _ in target_pieces])
    weights = attention[: len(target_pieces), first:last].astype("float64")
    overlaps = _overlaps(target_words, target_pieces)
    shares = overlaps / np.maximum(1, overlaps.sum(axis=1, keepdims=True))  # rows sum to 1, or 0
    by_word = shares @ weights @ _overlaps(source_words, source_pieces).T
    return Alignment(source_words, target_words, _best_links(by_word), by_word)


def split_copied_words(
    alignment: Alignment, source: str, target: str, boundaries: Collection[int]
) -> Alignment:
    """Return an alignment whose copied words are split where the source has markup in them.

    A word is copied if its translation is the same word, maybe with other capitals. The `weights`
    are not in the result.
    """
    copies = {
        first: second
        for (first, second), count in Counter(alignment.links).items()
        if count > 1
        and _is_copy(
            source[slice(*alignment.source[first])], target[slice(*alignment.target[second])]
        )
    }
    ordered = sorted(boundaries)
    source_cuts: set[int] = set()
    target_cuts: set[int] = set()
    for first, second in copies.items():
        start, end = alignment.source[first]
        inside = between(ordered, start, end)
        source_cuts.update(inside)
        target_cuts.update(position - start + alignment.target[second][0] for position in inside)
    if not source_cuts:
        return alignment
    source_words, source_parts = _split(alignment.source, source_cuts)
    target_words, target_parts = _split(alignment.target, target_cuts)
    links: list[Link] = []
    for first, second in alignment.links:
        if copies.get(first) == second:
            links += zip(source_parts[first], target_parts[second], strict=True)
        else:
            links.append((source_parts[first][0], target_parts[second][0]))
    return Alignment(source_words, target_words, links)


def _is_copy(source: str, target: str) -> bool:
    return len(source) == len(target) and source.lower() == target.lower()


def _split(words: Sequence[Span], cuts: Iterable[int]) -> tuple[list[Span], list[range]]:
    """Return words cut at some positions, and the indices of the parts of each word."""
    ordered = sorted(cuts)
    spans: list[Span] = []
    parts: list[range] = []
    for start, end in words:
        inside = between(ordered, start, end)
        spans += itertools.pairwise([start, *inside, end])
        parts.append(range(len(spans) - len(inside) - 1, len(spans)))
    return spans, parts


def hypothesis_alignment(source: str, hypothesis: Hypothesis) -> Alignment:
    """Return the alignment of a hypothesis, by the mean attention of all layers and heads."""
    if hypothesis.attention is None:
        raise ValueError(
            "translation: expected one with attention, got none; translate with attention=True."
        )
    return align(source, hypothesis._replace(attention=hypothesis.attention.mean(axis=(0, 1))))


def _overlaps(words: Sequence[Span], pieces: Sequence[Span]) -> np.ndarray:
    """Return (words, pieces): 1 where a piece has characters of a word."""
    starts, ends = np.array(words).reshape(-1, 2).T[..., None]  # (words, 1)
    piece_starts, piece_ends = np.array(pieces).reshape(-1, 2).T
    return ((piece_starts < ends) & (starts < piece_ends)).astype("float64")


def _best_links(weights: np.ndarray) -> list[Link]:
    """Return the links of the largest weight of each row and of each column."""
    if not weights.size:
        return []
    # Of equal weights, as of words that the tokenizer has in one piece, the one nearest to the
    # diagonal counts.
    rows, columns = (np.linspace(0, 1, count) for count in weights.shape)
    weights = weights - NEARNESS * abs(rows[:, None] - columns)
    by_row = [(int(column), row) for row, column in enumerate(weights.argmax(axis=1))]
    return by_row + [(column, int(row)) for column, row in enumerate(weights.argmax(axis=0))]
