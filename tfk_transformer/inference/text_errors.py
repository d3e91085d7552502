"""The error that names the texts that a model cannot process."""

from collections.abc import Callable, Mapping
from typing import Any


class TextError(ValueError):
    """Some of several texts cannot be processed.

    Args:
        argument: the name of the argument that holds the texts.
        problem: what is wrong with it, in one line: expected, got, remedy.
        reasons: for the index of each text that cannot be processed, what is wrong with this text.
        results: for the index of each other text, its result. Empty if the model did not run, or its rows are no results yet.
        rows: for the index of each other text, the row that the model returned, from which `with_results` makes the results.
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
        return TextError(self.argument, self.problem, self.reasons, {i: convert(i, row) for i, row in self.rows.items()})
