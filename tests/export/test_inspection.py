import json
import re
import shutil
import subprocess
import sys

import onnx
import pytest
from tensorflow.core.protobuf import saved_model_pb2
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.export.inspection import inspect
from tfk_transformer.inference.signatures import GENERATE, SAVED_MODEL, TRANSLATE


def names(tensors):
    return [tensor["name"] for tensor in tensors]


@pytest.mark.parametrize(("name", "signature"), [("generate", GENERATE), ("translate", TRANSLATE)])
def test_inspect_describes_onnx_file(exported, translator, name, signature):
    path = exported / f"{name}.onnx"
    actual = inspect(path)
    inputs, outputs = actual["signatures"][name].values()
    expected = [
        {"name": t.name, "dtype": t.dtype, "shape": list(t.shape)}
        for t in (*signature.inputs, *signature.outputs)
    ]
    assert [
        {key: t[key] for key in ("name", "dtype", "shape")} for t in (*inputs, *outputs)
    ] == expected
    assert inputs[1]["default"] == {"generate": [[0]], "translate": [""]}[name]
    # The model's.
    assert {t["name"]: t["default"] for t in inputs[2:]} == {
        **SearchSettings().as_numbers(),
        "max_length": 32,
    }
    assert actual["files"] == {path.name: path.stat().st_size}
    assert actual["config"] == translator.model.config.model_dump(mode="json")
    assert actual["parity"]["ids"] == "equal"
    assert actual["parity"]["sentences"] >= 100
    assert actual["facts"]["opsets"]["ai.onnx"] == 18
    assert actual["facts"]["special_ids"]["end"] == 2
    assert actual["facts"]["nodes"] > actual["facts"]["nodes_in_the_innermost_loop"] > 20
    # All weights once, positions, and a few constants.
    weights = translator.model.count_params()
    assert weights < actual["parameters"] < weights + 3 * 32 * 128


def test_inspect_describes_saved_model(exported, translator):
    actual = inspect(exported / "saved_model")
    assert set(SAVED_MODEL) <= set(actual["signatures"])
    for name, signature in SAVED_MODEL.items():
        inputs, outputs = actual["signatures"][name].values()
        assert names(inputs) == [t.name for t in signature.inputs]
        assert sorted(names(outputs)) == sorted(t.name for t in signature.outputs)
    assert actual["signatures"]["generate"]["inputs"][0] == {
        "name": "source_ids",
        "dtype": "int32",
        "shape": [None, None],
    }
    assert actual["parameters"] == translator.model.count_params()
    assert actual["config"] == translator.model.config.model_dump(mode="json")
    assert actual["config"]["target_language"] == "de"
    assert actual["parity"] == {
        **actual["parity"],
        "ids": "equal",
        "largest_score_difference": pytest.approx(0, abs=1e-3),
    }
    assert (
        actual["files"]["saved_model.pb"]
        == (exported / "saved_model" / "saved_model.pb").stat().st_size
    )


def test_inspect_describes_bundle(bundle, translator):
    actual = inspect(bundle)
    assert actual["kind"] == "bundle"
    assert actual["parameters"] == translator.model.count_params()
    assert actual["config"]["source_vocab_size"] == 80
    assert actual["facts"]["accuracy"] > 0.9
    assert "model.safetensors" in actual["files"]


def test_inspect_refuses_broken_files(exported, tmp_path):
    for name, content in (
        ("corrupt.onnx", b"corrupt"),
        ("empty.onnx", b""),
        ("cut.onnx", (exported / "generate.onnx").read_bytes()[:9999]),
    ):
        (tmp_path / name).write_bytes(content)
    values = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:]
    )
    onnx.save(onnx.helper.make_model(graph), tmp_path / "foreign.onnx")
    broken = shutil.copytree(exported / "saved_model", tmp_path / "broken")
    (broken / "saved_model.pb").write_bytes(b"nothing")
    without = shutil.copytree(exported / "saved_model", tmp_path / "without")
    shutil.rmtree(without / "variables")
    other = shutil.copytree(exported / "saved_model", tmp_path / "other")
    saved = saved_model_pb2.SavedModel.FromString((other / "saved_model.pb").read_bytes())
    inputs = saved.meta_graphs[0].signature_def["translate"].inputs
    inputs["text"].dtype = 999
    (other / "saved_model.pb").write_bytes(saved.SerializeToString())
    for name, message in (
        ("none", "expected a bundle .* or an .onnx file, got .*none, which does not exist"),
        ("", "got a folder without any of these files"),
        ("corrupt.onnx", "corrupt.onnx, which does not load"),
        ("empty.onnx", "empty.onnx, which "),
        ("cut.onnx", "cut.onnx, which does not load"),
        ("foreign.onnx", "foreign.onnx, which has no metadata"),
        ("broken", "broken does not load"),
        ("without", "without does not load"),
        ("other", "other, which is incomplete: TypeError: .* 999"),
    ):
        with pytest.raises(ValueError, match=message):
            inspect(tmp_path / name)


def test_inspect_prints_table_and_json(exported):
    code = (
        "import runpy, sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
        "runpy.run_module('tfk_transformer')"
    )
    path = exported / "translate.onnx"
    command = [sys.executable, "-c", code, "inspect", path]
    people = subprocess.run(command, capture_output=True, text=True)
    machines = CliRunner().invoke(main.app, ["inspect", str(path), "--json"])
    assert people.stderr == machines.stderr == ""
    assert json.loads(machines.stdout) == inspect(path)
    rows = [
        [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]
        for line in people.stdout.splitlines()
        if line[0] in "│┃"
    ]
    assert ["input", "text", "string", "[N]", ""] in rows
    assert ["input", "length_penalty", "float32", "[]", "0.6"] in rows
    assert ["output", "scores", "float32", "[N, n_best]", ""] in rows
    assert ["model_dim", "128"] in rows
    assert ["sentences", "128"] in rows
    size = path.stat().st_size
    assert ["translate.onnx", f"{size:,} bytes"] in rows
