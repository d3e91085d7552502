"""The bundle and the ONNX file in `saved_files/` open and give what `make.py` recorded."""

import json
from pathlib import Path

import numpy as np
import pytest

import tfk_transformer as tfk

FILES = Path(__file__).parent / "saved_files"
EXPECTED = json.loads((FILES / "expected.json").read_text())


@pytest.mark.parametrize("name", ["bundle", "translate.onnx"])
def test_old_files_translate_alike(name):
    actual = tfk.load(FILES / name).translate(EXPECTED["texts"], **EXPECTED["settings"])
    for translation, expected in zip(actual, EXPECTED["hypotheses"], strict=True):
        assert [hypothesis.text for hypothesis in translation.hypotheses] == [
            text for text, _ in expected
        ]
        scores = [hypothesis.score for hypothesis in translation.hypotheses]
        np.testing.assert_allclose(scores, [score for _, score in expected], rtol=1e-5)


def test_old_bundle_scores_alike():
    actual = tfk.load(FILES / "bundle").score(EXPECTED["texts"], EXPECTED["targets"])
    np.testing.assert_allclose(actual, EXPECTED["log_probabilities"], rtol=1e-5)


@pytest.mark.parametrize("name", ["bundle", "translate.onnx"])
def test_old_files_name_no_language(name):
    assert tfk.load(FILES / name).languages == (None, None)
