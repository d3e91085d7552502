"""The road of a text: which sentences it needs translated, one round after another.

A road is a generator. It yields the sentences of a round, receives their outcomes, and returns the
result. Whoever drives it decides where the sentences run: `drive` calls a function, and the server
awaits its batches.
"""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar, cast

from tfk_transformer.text.outcome import Outcome
from tfk_transformer.text.results import Translation

T = TypeVar("T")


class Sentences(NamedTuple):
    """The sentences of a round."""

    texts: list[str]
    prefixes: list[str]  # the forced beginning of each translation, or ""
    attention: bool = False  # whether the hypotheses need their attention


Outcomes: TypeAlias = Sequence[Outcome[Translation]]
Road: TypeAlias = Generator[Sentences, Outcomes, T]


def advance(road: Road[T], outcomes: Outcomes | None) -> tuple[Sentences | None, T | None]:
    """Return the sentences of the next round, or None and the result at the end of the road.

    Args:
        road: the road.
        outcomes: the outcomes of the round before; None before the first round.
    """
    try:
        return (next(road) if outcomes is None else road.send(outcomes)), None
    except StopIteration as end:
        return None, end.value


def drive(road: Road[T], translate: Callable[[Sentences], Outcomes]) -> T:
    """Run the sentences of each round with a function, and return the result of the road."""
    sentences, result = advance(road, None)
    while sentences is not None:
        sentences, result = advance(road, translate(sentences))
    return cast(T, result)
