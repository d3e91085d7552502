"""The work of a request: its task, its settings, and its cost for the model."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from starlette.exceptions import HTTPException

from tfk_transformer.config.search_settings import SearchSettings

CHARACTERS_PER_TOKEN = 4  # about, in languages with letters


class Work(NamedTuple):
    """A task of the model and its settings. Texts of equal work can share a batch.

    "sentences" are translated except for the characters that the vocabulary lacks. "translate"
    translates each text exactly as it is.
    """

    task: Literal["sentences", "translate", "score", "classify"]
    settings: tuple[tuple[str, Any], ...] = ()  # search settings by name, sorted


def text_costs(work: Work, texts: Sequence[str]) -> list[int]:
    """Return the cost of each text for the model: beam size × number of tokens.

    The number of tokens is an estimate: the tokens of the text, or `min_length` if this is larger.
    """
    settings = dict(work.settings)
    beam_size = settings.get("beam_size", SearchSettings.beam_size)
    min_length = settings.get("min_length", SearchSettings.min_length)
    if work.task in ("score", "classify"):
        beam_size = 1
    return [beam_size * max(len(text) // CHARACTERS_PER_TOKEN + 1, min_length) for text in texts]


def expensive_texts(maximum: int, cost: int) -> HTTPException:
    """Return the error for texts of a request that cost more than `maximum`."""
    return HTTPException(
        422,
        f"texts: expected a cost of at most {maximum}, got {cost}, the beam size times the number "
        "of tokens; send several requests or use a smaller beam.",
    )


def late_answer(timeout: float) -> HTTPException:
    """Return the error for an answer that takes longer than `timeout` seconds."""
    return HTTPException(
        504,
        f"time: expected an answer within {timeout:g} s, got none; send fewer or shorter texts, or "
        "try again later.",
        {"Retry-After": "5"},
    )


def full_queue(maximum: int, waiting: int, added: int, content: str) -> HTTPException:
    """Return the error for texts for which a queue has no room."""
    return HTTPException(
        429,
        f"queue: expected at most {maximum} {content}, got {waiting} that wait and {added} more; "
        "try again later.",
        {"Retry-After": "1"},
    )
