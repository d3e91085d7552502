"""The benchmark of number words, with a small recipe."""

import re
import sys
from pathlib import Path

import pytest
from forked_programs import run_program

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "number_words.py"
sys.path.insert(0, str(BENCHMARK.parent))

import number_words  # noqa: E402


def test_exact_match_is_a_percentage(translator):
    assert number_words.exact_match(translator, [7, 42]) == "100.0 %"
    # The model knows no number of six digits.
    assert number_words.exact_match(translator, [7, 654321, 42, 987654]) == "50.0 %"


# Two trainings by the command, in processes of their own.
@pytest.mark.long
def test_benchmark_trains_each_seed(recipe, tmp_path):
    """The recipe has the numbers below 200, so it knows those of two digits and nearly none of
    six.
    """
    (tmp_path / "small.toml").write_text(recipe.replace(epochs=15).to_toml())
    command = [sys.executable, BENCHMARK, "--seeds", "2", "--recipe", tmp_path / "small.toml"]
    done = run_program(command)
    assert done.returncode == 0, done.stderr
    rows = re.findall(
        r"^(\d) (\d+) s ([\d.]+) % ([\d.]+) % ([\d.]+) % ([\d.]+) %$", done.stdout, re.MULTILINE
    )
    assert [row[0] for row in rows] == ["0", "1"]
    assert rows[0][2:] != rows[1][2:]
    for _, seconds, *shares in rows:
        below_100, below_1000, _, uniform = map(float, shares)
        assert int(seconds) > 0
        assert below_100 > 90 > 50 > below_1000 > uniform
    assert f"{recipe.data}, 15 epochs. Processor:" in done.stdout
