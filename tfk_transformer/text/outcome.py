"""Errors for texts that a model cannot process; the other texts are still processed."""

import math
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


def refuse_long_texts(
    texts: Sequence[str],
    results: Sequence[Any],
    scores: Sequence[float],
    max_length: int,
    arguments: str = "texts",
) -> None:
    """Check that all texts fit the model.

    Args:
        texts: the texts.
        results: the result of each text.
        scores: the score of each result. NaN marks a text that is too long.
        max_length: the model's limit in tokens, for the error message.
        arguments: the names of the arguments that can be too long, for the error message.

    Raises:
        TextError: if a score is NaN. It contains the results of the other texts.
    """
    too_long = [i for i, score in enumerate(scores) if math.isnan(score)]
    if too_long:
        rest = {i: result for i, result in enumerate(results) if not math.isnan(scores[i])}
        raise long_texts_error(texts, too_long, rest, max_length, arguments)


def long_texts_error(
    texts: Sequence[str],
    too_long: Iterable[int],
    results: Mapping[int, Any],
    max_length: int,
    arguments: str = "texts",
) -> TextError:
    """Return the error for texts that are too long.

    Args:
        texts: all texts.
        too_long: the indices of the texts that are too long.
        results: the results of the other texts, by the index of the text.
        max_length: the model's limit in tokens.
        arguments: the names of the arguments that can be too long.
    """
    samples = {i: f"'{texts[i][:30]}…', {len(texts[i].split())} words" for i in too_long}
    first = ", ".join(f"number {i + 1} ({sample})" for i, sample in list(samples.items())[:3])
    return TextError(
        arguments,
        (
            f"expected at most {max_length} tokens each, got more in {len(samples)}: {first}; "
            "split them into sentences."
        ),
        {
            i: (
                f"expected at most {max_length} tokens, got more ({sample}); split it into "
                "sentences."
            )
            for i, sample in samples.items()
        },
        results,
    )
