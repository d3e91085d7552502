"""Fit a calibration to translations with references, and measure how good confidences are."""

from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics import CHRF

from tfk_transformer.text.calibration import Calibration, features
from tfk_transformer.text.results import Translation

MIN_PAIRS = 100
RIDGE = 1.0  # penalty of the squared weights of standardized features, against separable data
NEWTON_STEPS = 30
BINS = 10  # of the expected calibration error


def fit_calibration(
    translations: Sequence[Translation], references: Sequence[str], chrf: float
) -> Calibration:
    """Return the calibration that fits translations of sentences with references."""
    if len(translations) < MIN_PAIRS:
        raise ValueError(
            f"pairs: expected at least {MIN_PAIRS} pairs to calibrate with, got "
            f"{len(translations)}; use more data that the model has not seen in training."
        )
    right = are_right([translation.text for translation in translations], references, chrf)
    inputs = np.array([features(translation) for translation in translations])
    intercept, (score, length, ratio) = fit_logistic_regression(inputs, right)
    share = float(right.mean())
    return Calibration(intercept, score, length, ratio, chrf, len(translations), share)


def are_right(texts: Sequence[str], references: Sequence[str], chrf: float) -> np.ndarray:
    """Return whether the chrF of each text with its reference is at least `chrf`, bool (N,)."""
    metric = CHRF()
    scores = [
        metric.sentence_score(text, [reference]).score
        for text, reference in zip(texts, references, strict=True)
    ]
    return np.array(scores) >= chrf


def fit_logistic_regression(inputs: np.ndarray, labels: np.ndarray) -> tuple[float, list[float]]:
    """Return the intercept and the weights of a logistic regression, by Newton's method.

    Inputs are float (N, K), and labels are bool (N,). The targets are smoothed as in Platt's
    "Probabilistic outputs for support vector machines" (1999, section 2.2), so that probabilities
    remain between 0 and 1 if all labels are equal.
    """
    mean, scale = inputs.mean(axis=0), inputs.std(axis=0)
    scale[scale == 0] = 1
    rows = np.column_stack([np.ones(len(inputs)), (inputs - mean) / scale])  # (N, 1+K)
    positive = labels.sum()
    negative = len(labels) - positive
    targets = np.where(labels, (positive + 1) / (positive + 2), 1 / (negative + 2))
    penalty = RIDGE * np.eye(rows.shape[1])
    penalty[0, 0] = 0  # of the intercept
    weights = np.zeros(rows.shape[1])
    for _ in range(NEWTON_STEPS):
        probabilities = 0.5 + 0.5 * np.tanh(rows @ weights / 2)
        gradient = rows.T @ (probabilities - targets) + penalty @ weights
        curvature = (rows * (probabilities * (1 - probabilities))[:, None]).T @ rows + penalty
        weights -= np.linalg.solve(curvature, gradient)
    slopes = weights[1:] / scale
    return float(weights[0] - slopes @ mean), slopes.tolist()


def expected_calibration_error(confidences: np.ndarray, right: np.ndarray) -> float:
    """Return the mean difference between confidence and share of right translations.

    They are in `BINS` bins of equal width by confidence (arXiv:1706.04599, equation 3).
    """
    bins = np.minimum((confidences * BINS).astype(int), BINS - 1)
    excess = np.bincount(bins, weights=confidences - right, minlength=BINS)
    return float(np.abs(excess).sum() / len(right))


def auroc(confidences: np.ndarray, right: np.ndarray) -> float | None:
    """Return the probability that a right translation has a higher confidence than a wrong one.

    It is the area under the ROC curve. Equal confidences count half.
    """
    positive = int(right.sum())
    negative = len(right) - positive
    if not positive or not negative:
        return None
    _, inverse, counts = np.unique(confidences, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = ranks[inverse][right].sum()
    return float((rank_sum - positive * (positive + 1) / 2) / (positive * negative))
