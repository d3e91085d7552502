"""The confidences of a server whose model has a calibration."""

import json

import onnx
import pytest

from tfk_transformer import load
from tfk_transformer.export.runtime.sessions import METADATA
from tfk_transformer.text.calibration import Calibration, calibration_metadata

CALIBRATION = Calibration(2.0, 1.5, length=-0.25, ratio=0.5, chrf=50.0, pairs=200, right=0.75)
TEXTS = ["forty-two", "seven"]
LANGUAGES = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def calibrated(exported, tmp_path_factory):
    """A file whose metadata has a calibration."""
    path = tmp_path_factory.mktemp("calibrated") / "translate.onnx"
    model = onnx.load(exported / "translate.onnx")
    (entry,) = [entry for entry in model.metadata_props if entry.key == METADATA]
    entry.value = json.dumps({**json.loads(entry.value), **calibration_metadata(CALIBRATION)})
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def confident(serve, calibrated):
    return serve("--drain-delay", 0, file=calibrated)


@pytest.fixture(scope="module")
def expected(calibrated):
    results = load(calibrated).translate(TEXTS)
    confidences = [CALIBRATION.confidence(result) for result in results]
    assert 0 < confidences[1] < confidences[0] < 1
    return confidences


def test_libretranslate_answers_have_confidences(confident, server, expected):
    several = confident.send("/translate", {"q": TEXTS, **LANGUAGES}).content
    assert several["confidence"] == pytest.approx(expected, abs=1e-6)
    one = confident.send("/translate", {"q": "forty-two. seven.", **LANGUAGES}).content
    assert isinstance(one["confidence"], float)
    assert 0 < one["confidence"] < 1
    document = {"q": "<p>seven</p>", "format": "html", **LANGUAGES}
    assert confident.send("/translate", document).content["confidence"] is None
    assert "confidence" not in server.send("/translate", {"q": TEXTS, **LANGUAGES}).content


def test_open_inference_answers_have_confidences(confident, expected):
    outputs = confident.send("/v2/models/numbers").content["outputs"]
    tensor = {"name": "confidence", "datatype": "FP32", "shape": [-1]}
    assert outputs[2:] == [tensor]
    text = {"name": "text", "shape": [2], "datatype": "BYTES", "data": TEXTS}

    def infer(**parameters):
        request = {
            "inputs": [text],
            "outputs": [{"name": "confidence"}],
            "parameters": parameters,
        }
        (output,) = confident.send("/v2/models/numbers/infer", request).content["outputs"]
        assert output["shape"] == [2]
        return output["data"]

    assert infer() == pytest.approx(expected, abs=1e-6)
    assert infer(n_best=2) == pytest.approx(expected, abs=1e-6)
    assert infer(length_penalty=1.0) == ["NaN", "NaN"]


def test_generate_answers_have_confidences(confident, server, expected):
    path, request = "/v2/models/numbers/generate", {"text_input": TEXTS[0]}
    assert confident.send(path, request).content["confidence"] == pytest.approx(expected[0])
    assert "confidence" not in server.send(path, request).content
    request["parameters"] = {"temperature": 0.5}
    assert confident.send(path, request).content["confidence"] is None


def test_signatures_of_tf_serving_are_unchanged(confident, server):
    request = {"inputs": {"text": TEXTS}}
    path = "/v1/models/numbers:predict"
    assert confident.send(path, request).content == server.send(path, request).content
