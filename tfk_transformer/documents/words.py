"""Words of a text, and the places of a tokenizer's pieces in it."""

import itertools
import unicodedata
from collections.abc import Iterable, Sequence

Span = tuple[int, int]  # text[start:end]
LOOK_AHEAD = 3  # characters between a piece and the next one that a tokenizer may have changed
# Scripts that write words without blanks between them.
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def words(text: str, cuts: Iterable[int] = ()) -> list[Span]:
    """Return the places of words and of single punctuation marks.

    Args:
        text: the text.
        cuts: where the tokenizer cut it. A text without blanks between words is cut there too.
    """
    found: list[Span] = []
    for kind, group in itertools.groupby(range(len(text)), lambda place: _kind(text, place)):
        places = list(group)
        if kind == "word":
            inner = [
                place
                for place in sorted(set(cuts))
                if places[0] < place <= places[-1] and _is_unspaced(text[place])
            ]
            found += list(itertools.pairwise([places[0], *inner, places[-1] + 1]))
        elif kind == "mark":
            found += [(place, place + 1) for place in places]
    return found


def _kind(text: str, place: int) -> str:
    """Return the kind of a character; a mark between two letters or digits, as in "don't" and
    "3.5", belongs to the word.
    """
    character = text[place]
    if character.isspace():
        return "blank"
    inner = (
        character in "-'’.,_"
        and text[place - 1 : place].isalnum()
        and text[place + 1 : place + 2].isalnum()
    )
    return "word" if inner or unicodedata.category(character)[0] not in "PS" else "mark"


def _is_unspaced(character: str) -> bool:
    return unicodedata.name(character, "").startswith(UNSPACED)


def places_of(pieces: Sequence[str], text: str) -> list[Span]:
    """Return the place of each piece in the text that a tokenizer made pieces of.

    A piece whose characters the tokenizer changed gets the characters between the pieces beside it.
    """
    found: list[Span | None] = []
    done = 0
    for piece in pieces:
        surface = piece.replace("\u2581", " ").strip()
        blanks = len(text[done:]) - len(text[done:].lstrip())
        start = (
            text.find(surface, done, done + blanks + len(surface) + LOOK_AHEAD) if surface else done
        )
        found.append((start, start + len(surface)) if start >= 0 else None)
        done = done if start < 0 else start + len(surface)
    return _filled(found, len(text))


def _filled(found: Sequence[Span | None], length: int) -> list[Span]:
    """Return the places, and between its neighbours' that of each piece without one."""
    starts = [length] * (len(found) + 1)
    for n in reversed(range(len(found))):
        place = found[n]
        starts[n] = starts[n + 1] if place is None else place[0]
    ends = list(
        itertools.accumulate((0 if place is None else place[1] for place in found), max, initial=0)
    )
    return [(ends[n], starts[n + 1]) if place is None else place for n, place in enumerate(found)]
