"""The error that names the texts that a model cannot process, and how the other texts are processed
nevertheless.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class TextError(ValueError):
    """Some of several texts cannot be processed.

    Args:
        argument: the name of the argument that holds the texts.
        problem: what is wrong with it, in one line: expected, got, remedy.
        reasons: for the index of each text that cannot be processed, what is wrong with this text.
        results: for the index of each other text, its result. Empty if the model did not run, or
            its rows are no results yet.
        rows: for the index of each other text, the row that the model returned, from which
            `with_results` makes the results.
    """

    def __init__(
        self,
        argument: str,
        problem: str,
        reasons: Mapping[int, str],
        results: Mapping[int, Any] | None = None,
        rows: Mapping[int, Any] | None = None,
    ) -> None:
        super().__init__(argument, problem, reasons, results, rows)
        self.argument = argument
        self.problem = problem
        self.reasons = dict(reasons)
        self.results = dict(results or {})
        self.rows = dict(rows or {})

    def __str__(self) -> str:
        return f"{self.argument}: {self.problem}"

    def with_results(self, convert: Callable[[int, Any], Any]) -> "TextError":
        """Return this error with results that are made of its rows.

        Args:
            convert: maps the index of a text and its row to the result.
        """
        return TextError(
            self.argument,
            self.problem,
            self.reasons,
            {i: convert(i, row) for i, row in self.rows.items()},
        )


class UnprocessableText(NamedTuple):
    """Why a text cannot be processed."""

    argument: str  # the name of the argument that holds the text
    reason: str


def results_and_refusals(
    run: Callable[..., Iterable[Any]], *columns: Sequence[Any]
) -> tuple[dict[int, Any], dict[int, UnprocessableText]]:
    """Run a model on texts of which it may refuse some. It sees each text that it can process once.

    Only where an error comes without the results of the other texts, these run again.

    Args:
        run: maps texts, or the texts of several columns, to results.
        *columns: the texts, or lists of equal length whose texts belong together, such as sources
            and targets.

    Returns:
        the result for the index of each text that was processed, and the refusal for the index of
        each other text.
    """
    results: dict[int, Any] = {}
    refusals: dict[int, UnprocessableText] = {}
    waiting = list(range(len(columns[0])))
    while waiting:
        try:
            found = dict(enumerate(run(*([column[i] for i in waiting] for column in columns))))
        except TextError as error:
            found = error.results
            refusals |= {
                waiting[i]: UnprocessableText(error.argument, reason)
                for i, reason in error.reasons.items()
            }
        results |= {waiting[i]: result for i, result in found.items()}
        waiting = [] if found else [i for i in waiting if i not in refusals]
    return results, refusals
