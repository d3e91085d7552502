"""Words of a text, and the spans of a tokenizer's pieces in it."""

import bisect
import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence

from tfk_transformer.text.kept_characters import is_unspaced

Span = tuple[int, int]  # text[start:end]
NOT_BLANK = re.compile(r"\S")
LOOK_AHEAD = 3  # characters between a piece and the next one that a tokenizer may have changed


def word_spans(text: str, cuts: Iterable[int] = ()) -> list[Span]:
    """Return the spans of words and of single punctuation marks.

    Scripts without blanks between words are cut at `cuts`, where the tokenizer cut the text.
    """
    spans: list[Span] = []
    positions = range(len(text))
    unspaced_cuts = [n for n in sorted(set(cuts)) if n < len(text) and is_unspaced(text[n])]
    for character_type, group in itertools.groupby(positions, lambda n: _character_type(text, n)):
        run = list(group)
        if character_type == "word":
            inside = between(unspaced_cuts, run[0], run[-1] + 1)
            spans += itertools.pairwise([run[0], *inside, run[-1] + 1])
        elif character_type == "mark":
            spans += [(position, position + 1) for position in run]
    return spans


def between(positions: Sequence[int], start: int, end: int) -> Sequence[int]:
    """Return the sorted positions that are after `start` and before `end`."""
    return positions[bisect.bisect_right(positions, start) : bisect.bisect_left(positions, end)]


def _character_type(text: str, position: int) -> str:
    """Return "word", "mark" or "blank". A mark as in "don't" and "3.5" belongs to the word."""
    character = text[position]
    if character.isspace():
        return "blank"
    is_inner = (
        character in "-'’.,_"
        and text[position - 1 : position].isalnum()
        and text[position + 1 : position + 2].isalnum()
    )
    return "word" if is_inner or unicodedata.category(character)[0] not in "PS" else "mark"


def piece_spans(pieces: Sequence[str], text: str) -> list[Span]:
    """Return the span of each of a tokenizer's pieces in their text."""
    spans: list[Span | None] = []
    done = 0
    for piece in pieces:
        surface = piece.replace("\u2581", " ").strip()
        word = NOT_BLANK.search(text, done)
        limit = (word.start() if word else len(text)) + len(surface) + LOOK_AHEAD
        start = text.find(surface, done, limit) if surface else done
        if start >= 0:
            done = start + len(surface)
        spans.append((start, done) if start >= 0 else None)
    # A piece whose characters the tokenizer changed gets those between the neighboring pieces.
    starts = [len(text)] * (len(spans) + 1)
    for n, span in reversed(list(enumerate(spans))):
        starts[n] = starts[n + 1] if span is None else span[0]
    ends = [0, *itertools.accumulate((0 if span is None else span[1] for span in spans), max)]
    return [(ends[n], starts[n + 1]) if span is None else span for n, span in enumerate(spans)]
