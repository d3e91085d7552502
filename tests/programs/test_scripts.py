"""The scripts as a user runs them."""

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forked_programs import run_program

import tfk_transformer as tfk

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


DICTIONARY = """;;; # a comment
READ  R EH1 D
READ(1)  R IY1 D
seance S EY1 AA2 N S # foreign french
TEN  T EH1 N
ACROSS  AH0 K R AO1 S
"""


def test_cmudict_pairs_writes_split(tmp_path):
    (tmp_path / "cmudict").write_text(DICTIONARY, encoding="latin-1")
    # The words are looked up, whatever follows them; one is not in the dictionary.
    (tmp_path / "train").write_text("TEN  T EH N\nACROSS\nNEWER\n", encoding="latin-1")
    (tmp_path / "test").write_text("SEANCE\nREAD  R EH D\nREAD  R IY D\n", encoding="latin-1")
    files = [tmp_path / name for name in ("cmudict", "train", "test")]
    output = run("cmudict_pairs.py", *files, tmp_path / "out")
    assert "test: 2 words, 3 pronunciations" in output
    assert lines(tmp_path / "out/words.test.txt") == ["read", "read", "seance"]
    assert lines(tmp_path / "out/phones.test.txt") == ["R EH D", "R IY D", "S EY AA N S"]
    assert lines(tmp_path / "out/stressed.test.txt") == ["R EH1 D", "R IY1 D", "S EY1 AA2 N S"]
    kept = [lines(tmp_path / f"out/words.{split}.txt") for split in ("train", "validation")]
    assert sorted(sum(kept, [])) == ["across", "ten"]


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


# Trains 200 words for a few epochs, and measures.
@pytest.mark.long
def test_pronunciation_recipe_learns(tmp_path):
    """Words that are spelled as they are pronounced, with a phone for each letter."""
    words = ["".join(letters) for letters in itertools.product("ae", "lmnrs", "aeiou", "dkpt")]
    split = {name: words[start::10] for start, name in enumerate(["validation", "test"])}
    split["train"] = sorted({*words} - {*split["validation"], *split["test"]})
    folder = tmp_path / "cmudict"
    folder.mkdir()
    for name, chosen in split.items():
        sides = {"words": chosen, "phones": [" ".join(word.upper()) for word in chosen]}
        for side, texts in sides.items():
            (folder / f"{side}.{name}.txt").write_text("\n".join(texts), encoding="utf-8")
    data = f"folder:{folder}:words-phones"
    recipe = tfk.Recipe.read(SCRIPTS.parent / "recipes/g2p-en.toml").replace(
        data=data, batch_tokens=256, warmup_steps=10, epochs=30, average=1
    )
    translator = tfk.train(recipe, tmp_path / "g2p")
    pairs = tfk.datasets.load(data).pairs("test")
    figures, _ = tfk.evaluate(translator, pairs, pronunciations=True)
    assert figures.word_error_rate < 50
    assert figures.phone_error_rate < 20


def changed(code, **values):
    """Return a program with other values of arguments, such as `epochs="1"` for `epochs=6`."""
    for name, value in values.items():
        code, count = re.subn(rf"\b{name}=\w+", f"{name}={value}", code)
        assert count, name
    return code


# Reads 60,000 pairs, and trains for 150 steps.
@pytest.mark.long
def test_keras_fit_saves_bundle(tmp_path):
    """The script's own data, in small batches, and as many steps as it takes to learn."""
    small = {"batch_tokens": "512", "epochs": "epochs, steps_per_epoch=150"}
    code = (SCRIPTS / "keras_fit.py").read_text(encoding="utf-8")
    (tmp_path / "keras_fit.py").write_text(changed(code, **small), encoding="utf-8")
    output = run(tmp_path / "keras_fit.py", tmp_path / "bundle", 1)
    assert re.search(r"val_accuracy: 0\.[5-9]", output)
    assert (tmp_path / "bundle" / "model.safetensors").is_file()


# Reads 60,000 pairs, trains for 100 steps, and exports.
@pytest.mark.long
def test_readme_python_runs(tmp_path):
    """Its example of `fit`, word for word except for the length of the training and the size of
    batches: from text pairs to a file that translates.
    """
    (code,) = re.findall(
        r"```python\n(# fit.py\n.*?)```",
        (SCRIPTS.parent / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    code += 'print(translator.translate(["forty-two"])[0].text)\n'
    small = {"batch_tokens": "512", "epochs": "1, steps_per_epoch=100"}
    (tmp_path / "readme.py").write_text(changed(code, **small), encoding="utf-8")
    output = run(tmp_path / "readme.py", cwd=tmp_path)
    assert (tmp_path / "fitted" / "config.json").is_file()
    assert (tmp_path / "fitted-files" / "translate.onnx").is_file()
    # After 100 steps a translation is poor, on some processors even empty; the file's is the
    # model's all the same.
    by_the_file, by_the_model = output.split("\n")[-3:-1]
    assert by_the_file == by_the_model


# Trains an epoch, exports, and measures.
@pytest.mark.long
def test_demo_ends_with_a_table(recipe, tmp_path):
    """With a small recipe in the place of the script's, and one epoch, the model is poor; that all
    three are equally so is what counts here.
    """
    for folder in ("scripts", "recipes"):
        (tmp_path / folder).mkdir()
    script = shutil.copy(SCRIPTS / "demo.py", tmp_path / "scripts")
    (tmp_path / "recipes" / "numbers.toml").write_text(recipe.to_toml(), encoding="utf-8")
    output = run(script, "--out", tmp_path / "demo", "--epochs", 1)
    rows = dict(re.findall(r"│ (Keras|SavedModel|ONNX) +│ ([\d.]+) %", output))
    assert set(rows) == {"Keras", "SavedModel", "ONNX"}
    assert len(set(rows.values())) == 1
    assert "give the same ids for 128 sentences" in output
