"""The benchmark of number words, with a small recipe."""

import re
import sys
from pathlib import Path

import pytest
from forked_programs import run_program

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "number_words.py"


# Trains twice by the command, in processes of their own.
@pytest.mark.long
def test_number_words_trains_each_seed(recipe, tmp_path):
    """The recipe has the numbers below 200, so its model knows those of two digits."""
    (tmp_path / "small.toml").write_text(recipe.replace(epochs=15).to_toml())
    command = [sys.executable, BENCHMARK, "--seeds", "2", "--recipe", tmp_path / "small.toml"]
    done = run_program(command)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(\d) \d+ s ([\d.]+) % ([\d.]+) % ", done.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == ["0", "1"]
    assert all(float(below_100) > 90 > 50 > float(below_1000) for _, below_100, below_1000 in rows)
