"""The road of a text: a generator that yields sentences by rounds, and returns the result.

It receives the outcomes of the sentences of each round. Whoever drives it decides where they run:
`drive` calls a function, and the server awaits its batches.
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
    """Return the next request of a road, after an answer or None; or None and the road's result."""
    try:
        return (next(road) if answer is None else road.send(answer)), None
    except StopIteration as end:
        return None, end.value


def drive(road: Generator[Ask, Answer, T], answer: Callable[[Ask], Answer]) -> T:
    """Answer each request of a road with a function, and return the result of the road."""
    request, result = advance(road, None)
    while request is not None:
        request, result = advance(road, answer(request))
    return cast(T, result)
