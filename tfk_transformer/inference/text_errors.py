"""Errors for texts that a model cannot process; the other texts are still processed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


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


class UnprocessableText(NamedTuple):
    """Why a text cannot be processed."""

    argument: str  # the name of the argument that contains the text
    reason: str


def results_and_refusals(
    run: Callable[..., Iterable[Any]], *columns: Sequence[Any]
) -> tuple[dict[int, Any], dict[int, UnprocessableText]]:
    """Run a model on texts, and return the results and the texts that the model refuses.

    Each text runs once, unless an error does not contain the results of the other texts. In this
    case, the other texts run again.

    Args:
        run: maps texts, or the texts of several columns, to results.
        *columns: the texts, or lists of equal length whose texts belong together, such as sources
            and targets.

    Returns:
        The result of each text that was processed, and the refusal of each other text, both by the
        index of the text.
    """
    results: dict[int, Any] = {}
    refusals: dict[int, UnprocessableText] = {}
    pending = list(range(len(columns[0])))
    while pending:
        try:
            outputs = dict(enumerate(run(*([column[i] for i in pending] for column in columns))))
        except TextError as error:
            outputs = error.results
            refusals |= {
                pending[i]: UnprocessableText(error.argument, reason)
                for i, reason in error.reasons.items()
            }
        results |= {pending[i]: output for i, output in outputs.items()}
        pending = [] if outputs else [i for i in pending if i not in refusals]
    return results, refusals
