"""Turn the rows of a model's outputs into results."""

import math
from collections.abc import Sequence
from typing import Any

from tfk_transformer.inference.text_errors import TextError
from tfk_transformer.results import Classification, Hypothesis, Translation

# A search with fewer hypotheses than requested gives the missing ones a score of -1e9.
NO_HYPOTHESIS = -5e8


def to_translations(
    texts: Sequence[str],
    rows: Sequence[Sequence[Any]],
    max_length: int,
    prefixes: Sequence[str] = (),
) -> list[Translation]:
    """Turn rows of texts and scores into translations.

    Args:
        texts: the source texts.
        rows: for each source, the texts of its hypotheses and their scores.
        max_length: the model's limit in tokens, for the error message.
        prefixes: the forced beginnings, for the error message.

    Raises:
        TextError: if a score is NaN, which marks a source or a prefix that is too long. It contains
            the other translations.
    """
    translations = [
        Translation(text, _hypotheses(*row)) for text, row in zip(texts, rows, strict=True)
    ]
    scores = [translation.score for translation in translations]
    arguments = "texts, prefixes" if any(prefixes) else "texts"
    _refuse_too_long(texts, translations, scores, max_length, arguments)
    return translations


def to_classifications(
    texts: Sequence[str],
    rows: Sequence[tuple[str | bytes, float, Sequence[float]]],
    labels: Sequence[str],
    max_length: int,
) -> list[Classification]:
    """Turn rows of model outputs into classifications.

    Args:
        texts: the texts.
        rows: for each text, a label, its probability, and the probabilities of all labels.
        labels: all labels.
        max_length: the model's limit in tokens, for the error message.

    Raises:
        TextError: if a probability is NaN, which marks a text that is too long. It contains the
            other classifications.
    """
    classifications = [
        Classification(
            text,
            _decode(label),
            float(probability),
            dict(zip(labels, map(float, probabilities), strict=True)),
        )
        for text, (label, probability, probabilities) in zip(texts, rows, strict=True)
    ]
    probabilities = [classification.probability for classification in classifications]
    _refuse_too_long(texts, classifications, probabilities, max_length)
    return classifications


def _refuse_too_long(
    texts: Sequence[str],
    results: Sequence[Any],
    scores: Sequence[float],
    max_length: int,
    arguments: str = "texts",
) -> None:
    """Raise a `TextError` for the texts whose score is NaN, with the results of the other texts."""
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


def _hypotheses(texts: Sequence[str | bytes], scores: Sequence[float]) -> list[Hypothesis]:
    """Return the hypotheses of a search: always the first one, and all others that exist."""
    best, *rest = [
        Hypothesis(_decode(text), float(score)) for text, score in zip(texts, scores, strict=True)
    ]
    return [best, *(hypothesis for hypothesis in rest if hypothesis.score > NO_HYPOTHESIS)]


def _decode(text: str | bytes) -> str:
    return text.decode("utf-8") if isinstance(text, bytes) else str(text)
