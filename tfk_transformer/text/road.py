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
Ask = TypeVar("Ask")
Answer = TypeVar("Answer")


class Sentences(NamedTuple):
    """The sentences of a round."""

    texts: list[str]
    prefixes: list[str]  # the forced beginning of each translation, or ""
    attention: bool = False  # whether the hypotheses need their attention


Outcomes: TypeAlias = Sequence[Outcome[Translation]]
Road: TypeAlias = Generator[Sentences, Outcomes, T]


def advance(road: Generator[Ask, Answer, T], answer: Answer | None) -> tuple[Ask | None, T | None]:
    """Return what a road asks for next, or None and the result at its end.

    The `answer` is to what it asked for before; None at its start.
    """
    try:
        return (next(road) if answer is None else road.send(answer)), None
    except StopIteration as end:
        return None, end.value


def drive(road: Road[T], translate: Callable[[Sentences], Outcomes]) -> T:
    """Run the sentences of each round with a function, and return the result of the road."""
    sentences, result = advance(road, None)
    while sentences is not None:
        sentences, result = advance(road, translate(sentences))
    return cast(T, result)
