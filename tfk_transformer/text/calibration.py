"""Confidence: the estimated probability that a translation is right, from its score."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from tfk_transformer.config.search_settings import Rules
from tfk_transformer.text.results import Translation

DEFAULT_CHRF = 50.0  # of a right translation
MAX_NUMBER = 1e9  # in a record
CONFIDENCE = "confidence"  # the name of the record in the files of a model
# The settings that change the meaning of scores. A calibration holds for the model's own defaults.
SCORE_SETTINGS = (
    "length_penalty",
    "length_penalty_form",
    "coverage_penalty",
    "temperature",
    "repetition_penalty",
    "renormalize_logits",
)


class Calibration(NamedTuple):
    """A logistic regression that was fitted to translations with references."""

    intercept: float
    score: float  # weights of `features`
    length: float
    ratio: float
    chrf: float  # with the reference, from 0 to 100, from which a translation is right
    pairs: int  # number of translations of the fit
    right: float  # share of these translations that are right

    def confidence(self, translation: Translation) -> float:
        """Return the probability that a translation of one sentence is right."""
        score, length, ratio = features(translation)
        log_odds = self.intercept + self.score * score + self.length * length + self.ratio * ratio
        return 0.5 + 0.5 * math.tanh(log_odds / 2)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Return the calibration of a record of `_asdict` that a file contains."""
        if not is_calibration(record):
            raise ValueError(
                f"confidence: expected the numbers {', '.join(cls._fields)}, got {record!r:.80}; "
                "export the model again."
            )
        return cls(**{name: record[name] for name in cls._fields})


def features(translation: Translation) -> tuple[float, float, float]:
    """Return the numbers that all files have of a translation.

    They are its score, the logarithm of its number of characters, and the logarithm of the ratio of
    this number to the number of characters of the source.
    """
    length = math.log(1 + len(translation.text))
    return translation.score, length, length - math.log(1 + len(translation.source))


def is_calibration(value: Any) -> bool:
    """Return whether a value from a file is the record of a calibration."""
    return isinstance(value, dict) and all(
        type(value.get(name)) in (int, float) and abs(value[name]) < MAX_NUMBER
        for name in Calibration._fields
    )


def with_confidences(
    translations: Sequence[Translation],
    prefixes: Sequence[str],
    calibration: Calibration | None,
    settings: Mapping[str, Any],
    rules: Rules,
) -> list[Translation]:
    """Return translations with confidences, where scores mean what the calibration expects."""
    score_settings = [name for name in SCORE_SETTINGS if name in rules]
    changed = any(settings[name] != rules[name]["default"] for name in score_settings)
    if calibration is None or changed:
        return list(translations)
    return [  # none for blank texts, and with a forced beginning, which scores exclude
        translation
        if prefix or not translation.source.strip()
        else translation._replace(confidence=calibration.confidence(translation))
        for translation, prefix in zip(translations, prefixes, strict=True)
    ]


def lowest_confidence(translations: Iterable[Translation]) -> float | None:
    """Return the confidence of a text: that of its least certain sentence that has one."""
    confidences = (translation.confidence for translation in translations)
    return min((value for value in confidences if value is not None), default=None)


def calibration_metadata(calibration: Calibration | None) -> dict[str, dict[str, float]]:
    """Return the record of a calibration in files, by its name; empty without a calibration."""
    return {} if calibration is None else {CONFIDENCE: calibration._asdict()}
