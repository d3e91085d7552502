"""The benchmarks of decoding, on number words."""

import re
import sys
from pathlib import Path

import pytest
from forked_programs import run_program
from number_files import number_files_spec, write_number_files
from run_wide import made_once

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SAVED = Path(__file__).parents[1] / "saved_files"


# Two engines, each alone and with two batches at once, start in processes of their own.
@pytest.mark.long
def test_decoding_prints_speeds_and_equal_ids(bundle, exported, recipe, tmp_path):
    pytest.importorskip("ctranslate2")
    (tmp_path / "en.txt").write_text("one hundred ninety-nine\nseven\nforty-two\n")
    (tmp_path / "de.txt").write_text("einhundertneunundneunzig\nsieben\nzweiundvierzig\n")
    sources = ["--source", tmp_path / "en.txt", "--reference", tmp_path / "de.txt"]
    command = [sys.executable, BENCHMARKS / "decoding.py", bundle, exported, *sources]
    small = ["--max-length", "24", "--beam", "1", "--batch", "2", "--repeats", "1"]
    more = ["--student", bundle, exported, "--markdown", tmp_path / "tables.md"]
    done = run_program([*command, *small, *more])
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "tables.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    equal = {row[0] for row in rows if row[-2] == "100.0%"}
    for name in ("CTranslate2 float32", "ONNX portable", "student, ONNX portable, 2 at once"):
        assert name in equal
        speeds = next(row for row in rows if row[0] == name)
        assert re.fullmatch(r"[\d.]+ \([\d.]+ ×\)", speeds[1])


def test_decoding_needs_sentences(tmp_path):
    command = [sys.executable, BENCHMARKS / "decoding.py", SAVED / "bundle", tmp_path]
    done = run_program(command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("decoding.py: --data: expected data")


# Keras, a SavedModel and ONNX search for 40 texts, several times.
@pytest.mark.long
def test_runtimes_give_equal_hypotheses(bundle, exported):
    data = made_once("forty_numbers", lambda folder: write_number_files(folder, range(40)))
    command = [sys.executable, BENCHMARKS / "runtimes.py", bundle, exported]
    done = run_program([*command, "--data", number_files_spec(data), "--rounds", "1"])
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"│ (Keras|saved_model|translate.onnx) .* (\d+) of (\d+) ", done.stdout)
    assert [name for name, *_ in rows] == ["Keras", "saved_model", "translate.onnx"] * 3
    assert all(same == count for _, same, count in rows)
