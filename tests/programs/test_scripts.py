"""The scripts as a user runs them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked_programs import run_program

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(script, *arguments, cwd=None):
    command = [sys.executable, SCRIPTS / script, *map(str, arguments)]
    done = run_program(command, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_onnx_translate_is_standalone(exported, tmp_path):
    command = [
        sys.executable,
        SCRIPTS / "onnx_translate.py",
        exported / "translate.onnx",
        "forty-two",
        "seven",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split("\t")[-1] for line in lines[::3]] == ["forty-two", "seven"]
    assert [line.split("\t")[1] for line in lines[1::3]] == ["zweiundvierzig", "sieben"]
    assert "tfk_transformer" not in re.findall(
        r"^(?:from|import) (\w+)", (SCRIPTS / "onnx_translate.py").read_text(), re.MULTILINE
    )


# Trains an epoch of all number words.
@pytest.mark.long
def test_keras_fit_saves_bundle(tmp_path):
    """One epoch of the script's own data."""
    output = run("keras_fit.py", tmp_path / "bundle", 1)
    assert re.search(r"val_accuracy: 0\.[5-9]", output)
    assert (tmp_path / "bundle" / "model.safetensors").is_file()


# Trains for 100 steps of 2,048 tokens, and exports.
@pytest.mark.long
def test_readme_python_runs(tmp_path):
    """Its example of `fit`, word for word except for the length of the training: from text pairs to
    a file that translates.
    """
    (code,) = re.findall(
        r"```python\n(import keras\n.*?)```",
        (SCRIPTS.parent / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert "epochs=6" in code
    code += 'print(translator.translate(["forty-two"])[0].text)\n'
    (tmp_path / "readme.py").write_text(
        code.replace("epochs=6", "epochs=1, steps_per_epoch=100"), encoding="utf-8"
    )
    output = run(tmp_path / "readme.py", cwd=tmp_path)
    assert (tmp_path / "fitted" / "config.json").is_file()
    assert (tmp_path / "fitted-files" / "translate.onnx").is_file()
    # After 100 steps a translation is poor, on some processors even empty; the file's is the
    # model's all the same.
    by_the_file, by_the_model = output.split("\n")[-3:-1]
    assert by_the_file == by_the_model


# Trains an epoch of all number words, exports, and measures.
@pytest.mark.long
def test_demo_ends_with_a_table(tmp_path):
    """With one epoch the model is poor; that all three are equally so is what counts here."""
    output = run("demo.py", "--out", tmp_path / "demo", "--epochs", 1)
    rows = dict(re.findall(r"│ (Keras|SavedModel|ONNX) +│ ([\d.]+) %", output))
    assert set(rows) == {"Keras", "SavedModel", "ONNX"}
    assert len(set(rows.values())) == 1
    assert "give the same ids for 128 sentences" in output
