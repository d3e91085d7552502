"""The benchmark of training, on number words."""

import sys
from pathlib import Path

import numpy as np
import pytest
from forked_programs import run_program
from number_files import write_number_files

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from trainers.counts import model_flops, padding_share, target_tokens  # noqa: E402
from trainers.task import Batch, Sizes  # noqa: E402


def run(*options):
    return run_program([sys.executable, BENCHMARKS / "training.py", *options])


# An epoch of real pairs, and engines in processes of their own.
@pytest.mark.long
def test_training_measures_each_engine(tmp_path):
    pytest.importorskip("torch")
    small = "--batch-tokens 64 --max-length 32 --vocabulary 80 --steps 2 --repeats 1"
    names = ("fit, TensorFlow ", "fit, JAX", "keras-hub", "our loss", "PyTorch compiled")
    without = [word for name in names for word in ("--without", name)]
    data = ["--data", write_number_files(tmp_path / "data", range(60))]
    few = [*small.split(), "--product-size", "64", "--markdown", tmp_path / "tables.md"]
    done = run(*data, *few, *without)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "tables.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| small")]
    assert [row[3] for row in rows] == ["fit, TensorFlow", "PyTorch eager"] * 2
    assert rows[1][5] == "1.00"
    assert float(rows[0][5]) > 0
    ours, theirs = (row[-4] for row in rows[2:])
    assert ours == theirs  # parameters


def test_training_needs_batches_of_maximum_length():
    done = run("--data", "addition:2", "--batch-tokens", "64")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "training.py: --batch-tokens: expected at least --max-length 128, got 64."
    )


def test_only_real_tokens_count():
    sizes = Sizes(
        model_dim=2, ff_dim=3, num_heads=1, encoder_layers=1, decoder_layers=2, vocab_size=5
    )
    source, target = np.array([[4, 4, 2, 0]]), np.array([[4, 2, 0]])
    batches = [Batch(source, target, target)]
    by_source = 3 * ((4 * 4 + 2 * 6) + 2 * 8)  # one layer; keys and values of two decoder layers
    # Self-attention, query and output of cross-attention, feed-forward; the vocabulary.
    by_target = 2 * (2 * (4 * 4 + 2 * 4 + 2 * 6) + 2 * 5)
    attention = 2 * 2 * 9 + 2 * (2 * 2 * 4 + 2 * 2 * 6)
    assert model_flops(sizes, batches) == 6 * (by_source + by_target + attention)
    assert target_tokens(batches) == 2
    assert padding_share(batches) == pytest.approx(2 / 7)
