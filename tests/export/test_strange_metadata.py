"""ONNX files whose metadata a stranger wrote."""

import json
from pathlib import Path

import onnx
import onnxruntime
import pytest

from tfk_transformer.export.exporting import export
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime.onnx_runtime import OnnxScorer
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.runtime.sessions import METADATA

SAVED = Path(__file__).parents[1] / "saved_files" / "translate.onnx"


def with_metadata(source, path, change):
    """Write an ONNX file whose metadata is another text, or has been changed in place."""
    model = onnx.load(source)
    entries = {entry.key: entry for entry in model.metadata_props}
    if isinstance(change, str):
        entries[METADATA].value = change
    else:
        values = json.loads(entries[METADATA].value)
        change(values)
        entries[METADATA].value = json.dumps(values)
    onnx.save(model, path)
    return path


def without(*keys):
    """Return a change that deletes an entry of nested objects."""

    def change(values):
        for key in keys[:-1]:
            values = values[key]
        del values[keys[-1]]

    return change


def other(value, *keys):
    """Return a change that replaces an entry of nested objects."""

    def change(values):
        for key in keys[:-1]:
            values = values[key]
        values[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("no JSON", "expected JSON, got text that breaks off"),
        ("[" * 100_000, "too many nested brackets"),
        ("[1]", "expected a JSON object, got list"),
        ("{}", "no valid config"),
        (without("config"), "no valid config"),
        (other([], "config"), "no valid config"),
        (without("config", "max_length"), "no valid config"),
        (other("256", "config", "max_length"), "no valid config"),
        (other(-1, "config", "max_length"), "no valid config"),
        (without("search"), "expected 'search' in the metadata"),
        (other([], "search"), "no valid search"),
        (without("search", "beam_size"), "no valid search"),
        (without("search", "seed", "default"), "no valid search"),
        (other("4", "search", "beam_size", "default"), "no valid search"),
        (other(2**31, "search", "seed", "default"), "no valid search"),
        (other("text", "search", "seed", "type"), "no valid search"),
        (other([], "search", "seed", "type"), "no valid search"),
        (other(None, "search", "seed", "minimum"), "no valid search"),
        (other(float("inf"), "search", "length_penalty", "default"), "no valid search"),
        (other("de", "labels"), "no valid labels"),
        (other([1], "labels"), "no valid labels"),
        (other([None], "pieces"), "no valid pieces"),
    ],
)
def test_strange_metadata_is_refused(tmp_path, change, message):
    path = with_metadata(SAVED, tmp_path / "translate.onnx", change)
    with pytest.raises(ValueError, match=message) as refused:
        load(path)
    assert str(refused.value).startswith("ONNX: ")
    assert str(path) in str(refused.value)
    assert len(str(refused.value)) < 400
    if "search' in" not in message:
        with pytest.raises(ValueError, match=message):
            inspect(path)


def test_unknown_metadata_is_accepted(tmp_path):
    path = with_metadata(SAVED, tmp_path / "translate.onnx", other({"a": [1]}, "new"))
    assert load(path).translate(["forty-two"]) == load(SAVED).translate(["forty-two"])
    assert inspect(path)["facts"]["new"] == {"a": [1]}


@pytest.mark.parametrize(
    "value",
    [None, "", "not base 64!", "bm8gbW9kZWw="],
    ids=["none", "empty", "not base 64", "not SentencePiece"],
)
@pytest.mark.parametrize("name", ["source_tokenizer", "target_tokenizer"])
def test_scorer_needs_its_tokenizers(exported, tmp_path, name, value):
    model = onnx.load(exported / "score.onnx")
    (entry,) = [entry for entry in model.metadata_props if entry.key == name]
    if value is None:
        model.metadata_props.remove(entry)
    else:
        entry.value = value
    onnx.save(model, tmp_path / "score.onnx")
    expected = (
        "SentencePiece"
        if value == "bm8gbW9kZWw="
        else f"expected a SentencePiece model in base 64 as '{name}' in the metadata of "
    )
    with pytest.raises(ValueError, match=expected):
        OnnxScorer(tmp_path / "score.onnx").score(["one"], ["eins"])


@pytest.mark.parametrize("version", ["1.21.1", "1.24.4"])
def test_int8_needs_a_newer_onnxruntime(tmp_path, monkeypatch, version):
    """Earlier versions multiply 8-bit integers wrongly on processors with AMX."""
    path = with_metadata(SAVED, tmp_path / "translate.int8.onnx", other("int8", "profile"))
    assert load(path).translate(["seven"])[0].text
    monkeypatch.setattr(onnxruntime, "__version__", version)
    assert load(SAVED).translate(["seven"])[0].text
    message = (
        f"expected onnxruntime 1.25 or later for the 8-bit weights of .*int8.onnx, got {version}, "
        "which gives wrong results on some processors; run: pip install --upgrade onnxruntime"
    )
    with pytest.raises(ValueError, match=message):
        load(path)
    translator = load(SAVED.with_name("bundle"))
    with pytest.raises(ValueError, match="or later for the 8-bit weights of onnx_int8, got 1.2"):
        export(translator, tmp_path / "files", ["onnx_int8"])
