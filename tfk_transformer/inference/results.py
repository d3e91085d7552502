"""Convert the rows of a model's outputs to results."""

import math
from collections.abc import Sequence
from typing import Any

from tfk_transformer.inference.text_errors import TextError
from tfk_transformer.results import Hypothesis

# A search with fewer hypotheses than requested gives the missing ones a score of -1e9.
NO_HYPOTHESIS = -5e8


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
    too_long = {
        i: f"'{texts[i][:30]}…', {len(texts[i].split())} words"
        for i, score in enumerate(scores)
        if math.isnan(score)
    }
    if too_long:
        first = ", ".join(f"number {i + 1} ({text})" for i, text in list(too_long.items())[:3])
        raise TextError(
            arguments,
            (
                f"expected at most {max_length} tokens each, got more in {len(too_long)}: {first}; "
                "split them into sentences."
            ),
            {
                i: (
                    f"expected at most {max_length} tokens, got more ({text}); split it into "
                    "sentences."
                )
                for i, text in too_long.items()
            },
            {i: result for i, result in enumerate(results) if i not in too_long},
        )


def to_hypotheses(texts: Sequence[str | bytes], scores: Sequence[float]) -> list[Hypothesis]:
    """Return the hypotheses of a search: the first one, and the further ones that exist."""
    best, *rest = [
        Hypothesis(decode(text), float(score)) for text, score in zip(texts, scores, strict=True)
    ]
    return [best, *(hypothesis for hypothesis in rest if hypothesis.score > NO_HYPOTHESIS)]


def decode(text: str | bytes) -> str:
    """Return a text of a runtime as a string."""
    return text.decode("utf-8") if isinstance(text, bytes) else str(text)
