import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from number_files import number_files_spec, write_number_files
from run_wide import made_once

# A bundle of one layer, and its ONNX file.
SAVED = Path(__file__).parents[1] / "saved_files"
WITHOUT = Path(__file__).parents[2] / "benchmarks" / "without.py"
SIZES = {"model_dim": 16, "ff_dim": 16, "num_heads": 2}
SMALL = {"validation_data": None, "options": {**SIZES, "encoder_layers": 1, "decoder_layers": 1}}
WITH_ONEDNN = """
from tfk_transformer.apps.cli.main import main

try:
    main()
except SystemExit as end:
    assert not end.code, end
from tensorflow.python.util import _pywrap_util_port

print(_pywrap_util_port.IsMklEnabled())
"""


# Four searches are traced, two of them of an ensemble, and a training.
@pytest.mark.long
def test_distill_command_trains_student(run, recipe, tmp_path):
    options = [
        "--recipe",
        tmp_path / "mine.toml",
        "--epochs",
        1,
        "--vocab-size",
        50,
        "--option",
        "decoder_layers=1",
        "--out",
        tmp_path / "student",
    ]
    few = number_files_spec(
        made_once("fewer_numbers", lambda folder: write_number_files(folder, range(20)))
    )
    short = recipe.replace(data=few, validation_data=None, options={"encoder_layers": 1})
    (tmp_path / "mine.toml").write_text(short.to_toml())
    status, out, error = run(
        "ensemble", SAVED / "bundle", SAVED / "bundle", "--out", tmp_path / "both"
    )
    assert (status, out, error) == (0, f"bundle: {tmp_path / 'both'}\n", "")
    assert run("translate", tmp_path / "both", "seven") == run(
        "translate", SAVED / "bundle", "seven"
    )
    status, out, error = run(
        "distill", SAVED / "translate.onnx", tmp_path / "both", *options, "--beam-size", 2
    )
    assert (status, error) == (0, "")
    assert "teachers: 20 pairs are translated" in out
    assert out.splitlines()[-1] == f"bundle: {tmp_path / 'student'}"
    assert run("translate", tmp_path / "student", "seven")[0] == 0


@pytest.mark.skipif(
    shutil.which("cc") is None or platform.machine() != "x86_64",
    reason="needs a C compiler and x86-64",
)
def test_teacher_loads_with_onednn(bundle, recipe, tmp_path):
    """On processors without VNNI too, where TensorFlow by itself leaves it off."""
    (tmp_path / "mine.toml").write_text(recipe.replace(epochs=1, **SMALL).to_toml())
    command = [
        "distill",
        bundle,
        "--recipe",
        tmp_path / "mine.toml",
        "--beam-size",
        "1",
        "--quiet",
        "--out",
        tmp_path / "student",
    ]
    environment = {
        name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"
    }
    without = [sys.executable, WITHOUT, "avx512", sys.executable, "-c", WITH_ONEDNN, *command]
    done = subprocess.run(without, capture_output=True, text=True, env=environment)
    if done.returncode == 99:
        pytest.skip("needs a processor that can trap CPUID")
    assert done.stdout == "True\n", done.stderr


@pytest.mark.long  # a training
def test_train_json_is_one_object(run, recipe, tmp_path):
    """The lines of a training are on standard error then."""
    (tmp_path / "mine.toml").write_text(recipe.replace(epochs=1, **SMALL).to_toml())
    status, out, error = run("train", tmp_path / "mine.toml", "--out", tmp_path / "b", "--json")
    actual = json.loads(out)
    assert (status, actual["bundle"], actual["epoch"]) == (0, str(tmp_path / "b"), 1)
    assert actual == {
        "bundle": str(tmp_path / "b"),
        **json.loads((tmp_path / "b" / "metrics.json").read_text()),
    }
    assert "epoch 1/1: loss" in error


@pytest.mark.long  # a training
def test_json_results_are_one_object(run, recipe, tmp_path):
    (tmp_path / "mine.toml").write_text(recipe.replace(epochs=1, **SMALL).to_toml())
    student = ["--recipe", tmp_path / "mine.toml", "--out", tmp_path / "student", "--beam-size", 1]
    status, out, error = run("distill", SAVED / "translate.onnx", *student, "--json", "--quiet")
    assert (status, error) == (0, "")
    assert json.loads(out)["bundle"] == str(tmp_path / "student")
    status, out, error = run(
        "ensemble", SAVED / "bundle", SAVED / "bundle", "--out", tmp_path / "both", "--json"
    )
    assert (status, json.loads(out), error) == (
        0,
        {"bundle": str(tmp_path / "both"), "members": [str(SAVED / "bundle")] * 2},
        "",
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["{bundle}", "{tmp}/none", "--out", "{tmp}/new"],
            "bundle: expected a folder that `train` or `import` wrote, got {tmp}/none, which does",
        ),
        (
            ["{bundle}", "{bundle}", "--out", "{tmp}"],
            "out: expected a new folder, got {tmp}, which exists",
        ),
        (
            ["{bundle}", "{tmp}/other", "--out", "{tmp}/new"],
            "members: expected the same source_tokenizer in all members",
        ),
    ],
)
def test_ensemble_errors_are_one_line(run, bundle, tmp_path, arguments, problem):
    shutil.copytree(bundle, tmp_path / "other")
    with (tmp_path / "other" / "source.model").open("ab") as file:
        file.write(b"\x1a\x00")  # an empty field more
    status, out, error = run(
        "ensemble", *[text.format(bundle=bundle, tmp=tmp_path) for text in arguments]
    )
    assert (status, out) == (1, "")
    assert len(error.splitlines()) == 1
    assert problem.format(tmp=tmp_path) in error
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["{bundle}", "--data", "numbers:en-de", "--out", "{tmp}"],
            "out: expected a new folder, got {tmp}, which exists",
        ),
        (["{tmp}/none", "--data", "numbers:en-de", "--out", "{tmp}/new"], "{tmp}/none"),
        (
            ["{bundle}", "--data", "numbers:en-de"],
            "--out: expected a folder for the bundle, got none",
        ),
        (["{bundle}", "--out", "{tmp}/new"], "--data: expected a spec of the training pairs"),
        (
            [
                "{bundle}",
                "--data",
                "numbers:en-de",
                "--architecture",
                "encoder",
                "--out",
                "{tmp}/new",
            ],
            "architecture: expected 'encoder_dec",
        ),
    ],
)
def test_distill_errors_are_one_line(run, bundle, tmp_path, arguments, problem):
    status, out, error = run(
        "distill", *[text.format(bundle=bundle, tmp=tmp_path) for text in arguments]
    )
    assert (status, out) == (1, "")
    assert len(error.splitlines()) == 1
    assert problem.format(tmp=tmp_path) in error
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "new.distilled").exists()
