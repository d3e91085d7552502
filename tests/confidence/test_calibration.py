"""Confidences of translations, from a calibration with chosen weights."""

import json
import math
import re

import pytest

from tfk_transformer.config.search_settings import SETTING_DTYPES, SearchSettings, setting_rules
from tfk_transformer.export.to_web.web_files import PAGE_FILES
from tfk_transformer.text.calibration import (
    SCORE_SETTINGS,
    Calibration,
    calibration_metadata,
    is_calibration,
    lowest_confidence,
    with_confidences,
)
from tfk_transformer.text.results import Hypothesis, Translation

CALIBRATION = Calibration(0.5, score=2.0, length=-1.0, ratio=2.0, chrf=50.0, pairs=100, right=0.75)
RECORD = {
    "intercept": 0.5,
    "score": 2.0,
    "length": -1.0,
    "ratio": 2.0,
    "chrf": 50.0,
    "pairs": 100,
    "right": 0.75,
}
# Of a source of 4 and a translation of 3 characters with the score -0.25: the log-odds are
# 0.5 + 2 * -0.25 - log(1 + 3) + 2 * (log(1 + 3) - log(1 + 4)), so that the odds are 4 to 25.
EXPECTED = pytest.approx(4 / 29)
DEFAULTS = SearchSettings().as_dict()
RULES = setting_rules()


def translation(source, score=-0.25, text="abc", **values):
    return Translation(source, [Hypothesis(text, score)], **values)


def confidences(sources, prefixes=None, calibration=CALIBRATION, rules=RULES, **settings):
    results = with_confidences(
        [translation(source) for source in sources],
        prefixes or [""] * len(sources),
        calibration,
        {**DEFAULTS, **settings},
        rules,
    )
    assert [result[:4] for result in results] == [translation(source)[:4] for source in sources]
    return [result.confidence for result in results]


def test_confidence_matches_hand_value():
    assert CALIBRATION.confidence(translation("eins")) == EXPECTED
    assert CALIBRATION.confidence(translation("eins", text="")) == pytest.approx(1 / 26)
    # Characters count, not bytes.
    assert CALIBRATION.confidence(translation("😀ins", text="äb😀")) == EXPECTED


def test_extreme_scores_stay_between_0_and_1():
    scores = (-1e9, 1e9, math.nan)
    low, high, unknown = (CALIBRATION.confidence(translation("eins", score)) for score in scores)
    assert (low, high) == (0, 1)
    assert math.isnan(unknown)


def test_blank_texts_and_prefixes_have_no_confidence():
    assert confidences(["eins", " ", "zwei"], ["", "", "ab"]) == [EXPECTED, None, None]
    assert confidences(["eins"], calibration=None) == [None]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("length_penalty", 1.0),
        ("length_penalty_form", "length"),
        ("coverage_penalty", 0.1),
        ("temperature", 0.5),
        ("repetition_penalty", 1.2),
        ("renormalize_logits", True),
    ],
)
def test_settings_that_change_scores_leave_no_confidence(setting, value):
    assert confidences(["eins"], **{setting: value}) == [None]
    own = setting_rules(search={setting: value})  # the model's own default
    assert confidences(["eins"], rules=own, **{setting: value}) == [EXPECTED]
    assert confidences(["eins"], rules=own) == [None]


# The settings with which a score means the same: they change which hypotheses are found.
KEEP_SCORES = (
    "beam_size n_best min_length max_length max_length_factor top_k top_p seed "
    "no_repeat_ngram_size early_stopping forced_eos".split()
)


def test_every_setting_keeps_or_changes_scores():
    assert sorted([*SCORE_SETTINGS, *KEEP_SCORES]) == sorted(SETTING_DTYPES)
    page = (PAGE_FILES / "settings.mjs").read_text()
    assert json.loads(re.search(r"SCORE_SETTINGS = (\[.*\]);", page)[1]) == [*SCORE_SETTINGS]


def test_other_settings_keep_confidences():
    settings = {"beam_size": 5, "n_best": 2, "max_length": 9, "early_stopping": "never", "seed": 3}
    assert confidences(["eins"], **settings) == [EXPECTED]
    # Files of earlier versions have fewer settings.
    older = {name: rule for name, rule in RULES.items() if name != "renormalize_logits"}
    assert confidences(["eins"], rules=older) == [EXPECTED]


def test_text_has_the_lowest_confidence():
    parts = [translation("a", confidence=value) for value in (0.9, None, 0.25, 0.5)]
    assert lowest_confidence(parts) == 0.25
    assert lowest_confidence(parts[1:2]) is None
    assert lowest_confidence([]) is None


def test_record_is_read_again():
    assert calibration_metadata(CALIBRATION) == {"confidence": RECORD}
    assert calibration_metadata(None) == {}
    assert Calibration.from_json({**RECORD, "new": "value"}) == CALIBRATION


@pytest.mark.parametrize(
    "record",
    [
        [],
        {},
        {name: value for name, value in RECORD.items() if name != "score"},
        {**RECORD, "length": "1"},
        {**RECORD, "length": None},
        {**RECORD, "length": True},
        {**RECORD, "intercept": math.inf},
        {**RECORD, "intercept": math.nan},
        {**RECORD, "intercept": 10**400},
    ],
)
def test_strange_records_are_refused(record):
    assert not is_calibration(record)
    message = (
        "confidence: expected the numbers intercept, score, length, ratio, chrf, pairs, right, got"
    )
    with pytest.raises(ValueError, match=message):
        Calibration.from_json(record)
