"""Compare features of the confidence: fit each set to the validation split, measure it on test.

python benchmarks/confidence.py BUNDLE --data SPEC [--chrf N ...]
"""

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tfk_transformer import Translator, datasets
from tfk_transformer.text.calibration import Calibration, features
from tfk_transformer.text.calibration_fitting import (
    are_right,
    auroc,
    expected_calibration_error,
    fit_logistic_regression,
)

# Sets of features. Every file gives the first three features; the others need token
# log-probabilities or a second hypothesis.
FEATURE_SETS = [
    ["score"],
    ["score", "length"],
    ["score", "length", "ratio"],
    ["score", "length", "ratio", "margin"],
    ["score", "length", "ratio", "lowest"],
    ["mean"],
    ["mean", "length", "ratio"],
    ["mean", "length", "ratio", "margin", "lowest"],
]
THRESHOLDS = (0, 0.5, 0.7, 0.8, 0.9)


def all_features(translation) -> dict[str, float]:
    """Return the features of a translation by name."""
    best, *others = translation.hypotheses
    score, length, ratio = features(translation)
    return {
        "score": score,
        "length": length,
        "ratio": ratio,
        "margin": best.score - others[0].score if others else 5.0,
        "mean": np.mean(best.token_log_probs),
        "lowest": min(best.token_log_probs),
    }


def translate(translator: Translator, pairs) -> tuple[dict[str, np.ndarray], list, list]:
    """Translate pairs; return features by name, float (N,), and the translations and targets."""
    sources, targets = zip(*((pair.source, pair.target) for pair in pairs), strict=True)
    options = {"split_sentences": False, "token_scores": True, "n_best": 2}
    translations = translator.translate(sources, **options)
    rows = [all_features(translation) for translation in translations]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return columns, [translation.text for translation in translations], targets


def confidences_of(names, fitted, right, tested) -> np.ndarray:
    """Fit features to translations of which some are right; return confidences of others."""
    inputs = np.column_stack([fitted[name] for name in names])
    intercept, weights = fit_logistic_regression(inputs, right)
    log_odds = intercept + np.column_stack([tested[name] for name in names]) @ weights
    return 0.5 + 0.5 * np.tanh(log_odds / 2)


def main() -> None:
    """Measure each set of features, and what remains above thresholds of the confidence."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--chrf", type=float, nargs="+", default=[50.0])
    options = parser.parse_args()
    translator, source = Translator.load(options.bundle), datasets.load(options.data)
    splits = [translate(translator, source.pairs(split)) for split in ("validation", "test")]
    (fitted, *_), (tested, *_) = splits
    console = Console(highlight=False, soft_wrap=True)
    for chrf in options.chrf:
        right, test_right = (are_right(texts, targets, chrf) for _, texts, targets in splits)
        shares = f"{right.mean():.1%} of validation, {test_right.mean():.1%} of test"
        console.print(f"{options.data}, chrF of at least {chrf:g}: {shares}")
        table = Table("features", "AUROC", "calibration error")
        for names in FEATURE_SETS:
            confidences = confidences_of(names, fitted, right, tested)
            error = expected_calibration_error(confidences, test_right)
            area = auroc(confidences, test_right)
            table.add_row(", ".join(names), f"{area:.3f}", f"{error:.3f}")
        console.print(table)
        table = Table("confidence from", "translations", "of these right", "mean confidence")
        confidences = confidences_of(Calibration._fields[1:4], fitted, right, tested)
        for threshold in THRESHOLDS:
            kept = confidences >= threshold
            figures = (kept.mean(), test_right[kept].mean(), confidences[kept].mean())
            table.add_row(f"{threshold:g}", *(f"{figure:.1%}" for figure in figures))
        console.print(table)


if __name__ == "__main__":
    main()
