"""Which words of a translation stand for which words of its source, by the model's attention."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tfk_transformer.documents.results import TranslatedText
from tfk_transformer.documents.words import Span, places_of, words

if TYPE_CHECKING:
    from tfk_transformer.inference.results import Hypothesis  # of a folder above

# The worth of a target word without links: a run bridges one such word, where both its sides are
# linked both ways.
UNLINKED = -0.5
TURNED = 0.6  # the worth of a place beside a target word, on the other side than in the source
TAKEN = -1e9  # of one that another element has


class Alignment(NamedTuple):
    """The words of a source and of its translation, and the links between them, each the best of
    its row or column (SimAlign).
    """

    source: list[Span]
    target: list[Span]
    # (source word, target word); a link that is the best both ways is there twice.
    links: list[tuple[int, int]]
    # float64 (target words, source words); None without attention.
    weights: np.ndarray | None = None

    def best_range(
        self, inside: set[int], first: int, last: int, taken: set[int], anchor: str = ""
    ) -> Span:
        """Return the run of target words that holds most links of the source words `inside`, and
        fewest other words.

        Args:
            inside: the source words.
            first: the first target word that may be in the run.
            last: the end of those words.
            taken: target words that may not be in it.
            anchor: "start" or "end" if the run begins at `first`, or ends at `last`.

        Returns:
            The run [start:end] of target words, or (last, last) if none holds a link.
        """
        worth = np.array([TAKEN if word in taken else UNLINKED for word in range(len(self.target))])
        for source, target in self.links:
            worth[target] += source in inside
        sums = np.concatenate([[0.0], np.cumsum(worth[first:last])])
        starts, ends = np.triu_indices(len(sums))
        fits = {"": starts >= 0, "start": starts == 0, "end": ends == last - first}[anchor]
        gains = np.where(fits, sums[ends] - sums[starts], -np.inf)
        best = int(np.argmax(gains))
        return (
            (first + int(starts[best]), first + int(ends[best]))
            if gains[best] > 0
            else (last, last)
        )

    def best_gap(self, before: int, first: int, last: int) -> int:
        """Return the place between target words for something that stands behind the first `before`
        source words.

        Each link asks for the place that is as far from its target word as the thing is from its
        source word: most of all on the same side, less on the other, which is the right one where
        the order is turned around. Near words count most.

        Args:
            before: the number of source words before it.
            first: the least place, in target words.
            last: the greatest place.
        """
        votes = np.zeros(len(self.target) + 1)
        for source, target in self.links:
            is_before = source < before
            distance = before - source if is_before else source - before + 1
            for place, weight in ((target + distance, 1.0), (target + 1 - distance, TURNED)):
                place = place if is_before else 2 * target + 1 - place
                if first <= place <= last:
                    votes[place] += weight / distance**2
        return first + int(np.argmax(votes[first : last + 1])) if votes.any() else last


def aligned(source: str, found: TranslatedText) -> Alignment:
    """Return the alignment of a translation.

    Args:
        source: the text that was translated.
        found: its translation. Without attention there are no links.
    """
    if found.attention is None or found.tokens is None or found.source_tokens is None:
        return Alignment(words(source), words(found.text), [])
    # A decoder-only model attends to its start token, its prompt, and its own tokens.
    first = int(found.source_tokens[:1] == ["<s>"])
    count = len(found.source_tokens) - (len(found.tokens) if first else 1)
    pieces = (
        places_of(found.source_tokens[first : first + count], source),
        places_of(found.tokens[:-1], found.text),
    )
    sides = [
        words(text, [start for start, _ in places])
        for text, places in zip((source, found.text), pieces, strict=True)
    ]
    weights = found.attention[: len(pieces[1]), first : first + count].astype("float64")
    by_word = _shares(sides[1], pieces[1]) @ weights @ _overlaps(sides[0], pieces[0]).T
    return Alignment(sides[0], sides[1], _best_links(by_word), by_word)


def hypothesis_alignment(source: str, found: "Hypothesis") -> Alignment:
    """Return the alignment of a hypothesis, by the mean attention of all layers and heads.

    Args:
        source: the text that was translated.
        found: its translation.

    Raises:
        ValueError: if the hypothesis has no attention.
    """
    if found.attention is None:
        raise ValueError(
            "translation: expected one with attention, got none; translate with attention=True."
        )
    weights = found.attention.mean(axis=(0, 1))
    return aligned(
        source, TranslatedText(found.text, found.score, found.tokens, found.source_tokens, weights)
    )


def _overlaps(places: Sequence[Span], pieces: Sequence[Span]) -> np.ndarray:
    """Return (words, pieces): 1 where a piece has characters of a word."""
    return np.array(
        [[float(s < end and start < e) for s, e in pieces] for start, end in places]
    ).reshape(len(places), len(pieces))


def _shares(places: Sequence[Span], pieces: Sequence[Span]) -> np.ndarray:
    """Return `_overlaps` whose rows sum to 1, or 0."""
    found = _overlaps(places, pieces)
    return found / np.maximum(1, found.sum(axis=1, keepdims=True))


def _best_links(weights: np.ndarray) -> list[tuple[int, int]]:
    """Return (source word, target word) of the greatest value of each row and of each column of
    weights (target words, source words).
    """
    if not weights.size:
        return []
    by_row = [(int(column), row) for row, column in enumerate(weights.argmax(axis=1))]
    return by_row + [(column, int(row)) for column, row in enumerate(weights.argmax(axis=0))]
