"""The fit of confidences, and the figures that measure them."""

import math

import numpy as np
import pytest

from tfk_transformer.text.calibration_fitting import (
    are_right,
    auroc,
    expected_calibration_error,
    fit_calibration,
    fit_logistic_regression,
)
from tfk_transformer.text.results import Hypothesis, Translation

WORDS = ["cat", "dog", "bird", "house", "mouse", "garden", "river"]


def sigmoid(values):
    return 1 / (1 + np.exp(-np.asarray(values)))


def test_fit_has_the_share_of_constant_features():
    # Targets of three right and one wrong: 3 * 4/5 + 1/3 of 4.
    share = (3 * 4 / 5 + 1 / 3) / 4
    intercept, weights = fit_logistic_regression(
        np.full((4, 2), 7.0), np.array([True, False, True, True])
    )
    assert weights == [0, 0]
    assert intercept == pytest.approx(math.log(share / (1 - share)))


@pytest.mark.parametrize(("label", "probability"), [(True, 12 / 13), (False, 1 / 13)])
def test_fit_of_equal_labels_is_not_certain(label, probability):
    features = np.arange(11.0)[:, None]
    intercept, (weight,) = fit_logistic_regression(features, np.full(11, label))
    assert sigmoid(intercept + weight * features) == pytest.approx(
        np.full((11, 1), probability), abs=1e-9
    )


def test_fit_of_separable_labels_is_finite():
    features = np.linspace(-1, 1, 100)[:, None]
    intercept, (weight,) = fit_logistic_regression(features, features[:, 0] > 0)
    assert abs(intercept) < 1e-9
    assert 0.5 < sigmoid(weight * 0.1) < 0.99 < sigmoid(weight) < 1


def test_fit_recovers_the_weights_of_drawn_labels():
    random = np.random.default_rng(2)
    features = random.normal([-2, 4], [0.5, 3], (20_000, 2))
    labels = random.random(20_000) < sigmoid(3 + features @ [2, 0.25])
    intercept, weights = fit_logistic_regression(features, labels)
    assert intercept == pytest.approx(3, abs=0.2)
    assert weights == pytest.approx([2, 0.25], abs=0.1)


def test_right_translations_have_a_chrf():
    # Letters 2/2 and 2/3, pairs of letters 1/1 and 1/2: precision 1, recall 7/12, chrF 63.6.
    texts, references = ["ab", "ab", "abc"], ["abc", "xyz", "abc"]
    assert are_right(texts, references, 63).tolist() == [True, False, True]
    assert are_right(texts, references, 64).tolist() == [False, False, True]


def test_calibration_error_matches_hand_value():
    # Bins of 0.1: one wrong at 0.04; 0.72 and 0.78, one of them right; two right at 0.9 and 1.
    confidences = np.array([0.04, 0.72, 0.78, 0.9, 1.0])
    right = np.array([False, True, False, True, True])
    assert expected_calibration_error(confidences, right) == pytest.approx(
        (0.04 + abs(0.72 + 0.78 - 1) + abs(0.9 + 1 - 2)) / 5
    )
    assert expected_calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0


@pytest.mark.parametrize(
    ("confidences", "right", "area"),
    [
        ([0.1, 0.4, 0.35, 0.8], [False, False, True, True], 3 / 4),
        ([0.5, 0.5, 0.5], [False, True, False], 1 / 2),
        ([0.2, 0.2, 0.9], [False, True, True], 3 / 4),
        ([0.1, 0.9], [True, False], 0),
        ([0.1, 0.9], [True, True], None),
        ([0.1, 0.9], [False, False], None),
    ],
)
def test_auroc_counts_pairs_in_order(confidences, right, area):
    assert auroc(np.array(confidences), np.array(right)) == area


def test_calibration_describes_its_fit():
    random = np.random.default_rng(1)
    references = [" ".join(random.choice(WORDS, 5)) for _ in range(150)]
    translations = []
    for number, reference in enumerate(references):
        hypothesis = Hypothesis(reference, -0.2) if number % 3 else Hypothesis("xyz zyx yxz", -2.0)
        translations.append(Translation("eins zwei drei vier", [hypothesis]))
    fitted = fit_calibration(translations, references, 50.0)
    assert (fitted.chrf, fitted.pairs, fitted.right) == (50.0, 150, pytest.approx(2 / 3))
    assert fitted.confidence(translations[1]) > 0.95
    assert fitted.confidence(translations[0]) < 0.05


def test_few_pairs_are_refused():
    with pytest.raises(ValueError, match="pairs: expected at least 100 pairs to .* got 99; use"):
        fit_calibration([Translation("a", [Hypothesis("b", 0.0)])] * 99, ["b"] * 99, 50.0)
