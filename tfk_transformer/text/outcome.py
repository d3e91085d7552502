"""The outcome of a text: its result, or why it was refused.

Functions inside the library return outcomes; public methods raise `TextError`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

Result = TypeVar("Result")
# NUL ends a string in C; half a surrogate pair has no UTF-8 encoding.
INVALID_CHARACTER = re.compile("[\0\ud800-\udfff]")
REMEDY = "remove it, or decode the bytes that it came from as UTF-8."


class Refused(NamedTuple):
    """Why a text has no result."""

    argument: str  # the name of the argument that contains the text
    reason: str


Outcome: TypeAlias = Result | Refused


class TextError(ValueError):
    """One or more texts cannot be processed.

    Args:
        argument: the name of the argument that contains the texts.
        problem: the problem in one line: expected, got, remedy.
        reasons: the problem of each text that cannot be processed, by the index of the text.
        results: the result of each other text, by the index of the text. Empty if the model did not
            run.
    """

    def __init__(
        self,
        argument: str,
        problem: str,
        reasons: Mapping[int, str],
        results: Mapping[int, Any] | None = None,
    ) -> None:
        super().__init__(argument, problem, reasons, results)
        self.argument = argument
        self.problem = problem
        self.reasons = dict(reasons)
        self.results = dict(results or {})

    def __str__(self) -> str:
        return f"{self.argument}: {self.problem}"


def results_of(
    outcomes: Sequence[Outcome[Result]], problem: Callable[[list[int]], str]
) -> list[Result]:
    """Return the results of all texts, or raise `TextError` with the results of the others.

    `problem` maps the indices of the refused texts to the problem in one line.
    """
    results: dict[int, Result] = {}
    refused: dict[int, Refused] = {}
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Refused):
            refused[index] = outcome
        else:
            results[index] = outcome
    if refused:
        argument = next(iter(refused.values())).argument
        reasons = {index: refusal.reason for index, refusal in refused.items()}
        raise TextError(argument, problem(list(refused)), reasons, results)
    return list(results.values())


def too_long(text: str, max_length: int, argument: str = "texts") -> Refused:
    """Refuse a text that has more tokens than the model's limit."""
    sample = _sample(text)
    problem = f"expected at most {max_length} tokens, got more ({sample}); split it into sentences."
    return Refused(argument, problem)


def long_texts(texts: Sequence[str], refused: Sequence[int], max_length: int) -> str:
    """Return the problem of the texts that are too long, for `results_of`."""
    first = ", ".join(f"number {index + 1} ({_sample(texts[index])})" for index in refused[:3])
    return (
        f"expected at most {max_length} tokens each, got more in {len(refused)}: {first}; "
        "split them into sentences."
    )


def _sample(text: str) -> str:
    return f"'{text[:30]}…', {len(text.split())} words"


def check_texts(texts: Sequence[str], name: str = "texts") -> None:
    """Refuse values other than lists of strings (`ValueError`), and invalid strings (`TextError`).

    Runtimes would read strings with NUL or half a surrogate pair differently.
    """
    if problems := _problems(texts, name):
        first, problem = next(iter(problems.items()))
        reasons = {index: f"{problem}; {REMEDY}" for index, problem in problems.items()}
        raise TextError(name, f"{problem} of the text at index {first}; {REMEDY}", reasons)


def _problems(texts: Sequence[str], name: str) -> dict[int, str]:
    """Return what is wrong with each string that is not a valid text, by index."""
    if isinstance(texts, str):
        raise ValueError(
            f"{name}: expected a list of strings, got one string; write [{texts[:20]!r}]."
        )
    problems = {}
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            got = type(text).__name__
            raise ValueError(f"{name}: expected strings, got {got} at index {index}.")
        if match := INVALID_CHARACTER.search(text):
            problems[index] = (
                f"expected text, got the character U+{ord(match[0]):04X} at position "
                f"{match.start() + 1}"
            )
    return problems


def outcomes_of_valid(
    run: Callable[..., Sequence[Outcome[Result]]], columns: Mapping[str, Sequence[str]]
) -> list[Outcome[Result]]:
    """Return the outcomes of rows of texts, of which only the valid rows are run.

    `run` takes a list for each column, and `columns` are lists of equal length by argument.
    """
    refused: dict[int, Refused] = {}
    for name, texts in columns.items():
        for index, problem in _problems(texts, name).items():
            refused.setdefault(index, Refused(name, f"{problem}; {REMEDY}"))
    count = len(next(iter(columns.values())))
    valid = [index for index in range(count) if index not in refused]
    ran = iter(run(*([texts[index] for index in valid] for texts in columns.values())))
    return [refused[index] if index in refused else next(ran) for index in range(count)]


def forced_beginnings(prefixes: Sequence[str | None] | None, texts: Sequence[str]) -> list[str]:
    """Return the forced beginning of each text's translation, or ""."""
    if prefixes is None:
        return [""] * len(texts)
    if isinstance(prefixes, str):
        check_texts(prefixes, "prefixes")
    if len(prefixes) != len(texts):
        raise ValueError(
            f"prefixes: expected a prefix or None for each of {len(texts)} texts, got "
            f"{len(prefixes)}."
        )
    return ["" if prefix is None else prefix for prefix in prefixes]
