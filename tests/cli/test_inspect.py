"""`inspect` of two files."""

import json
import shutil

from tfk_transformer.apps.cli.commands.inspect import differences


def test_inspect_compares_each_value():
    first = {
        "path": "a",
        "files": {"x": 7},
        "signatures": {"s": {"inputs": [{"name": "ids", "dtype": "int32", "shape": [None, 3]}]}},
    }
    second = {
        "path": "b",
        "files": {"x": 7, "y": 2},
        "signatures": {"s": {"inputs": [{"name": "ids", "dtype": "int64", "shape": [None, 3]}]}},
    }
    assert dict(differences(first, second)) == {
        "files.y": (None, 2),
        "signatures.s.inputs.ids": ("int32 [?, 3]", "int64 [?, 3]"),
    }
    assert dict(differences(first, first)) == {}


def test_inspect_compares_export_files(run, exported):
    status, out, error = run(
        "inspect", exported / "translate.onnx", exported / "generate.onnx", "--json"
    )
    assert (status, error) == (0, "")
    actual = json.loads(out)
    assert actual["paths"] == [str(exported / "translate.onnx"), str(exported / "generate.onnx")]
    sizes = [(exported / name).stat().st_size for name in ("translate.onnx", "generate.onnx")]
    assert actual["differences"]["files.translate.onnx"] == [sizes[0], None]
    assert actual["differences"]["files.generate.onnx"] == [None, sizes[1]]
    assert actual["differences"]["signatures.generate"] == [None, "19 inputs, 2 outputs"]
    assert not any(name.startswith(("config.", "parity.ids")) for name in actual["differences"])
    status, out, _ = run("inspect", exported / "translate.onnx", exported / "translate.onnx")
    assert status == 0
    assert "0 differences" in out


def test_brackets_print_unchanged(run, exported, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    folder = tmp_path / "b [i]"  # what Rich would take for a style
    folder.mkdir()
    shutil.copyfile(exported / "generate.onnx", folder / "generate.onnx")
    status, out, _ = run("inspect", folder / "generate.onnx")
    assert status == 0
    assert "b [i]/generate.onnx" in out
    assert " [N, S] " in out
    status, out, _ = run("inspect", folder / "generate.onnx", exported / "translate.onnx")
    assert status == 0
    assert "[i]/" in out
