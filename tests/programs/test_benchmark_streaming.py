"""Memory use does not grow with the number of pairs, from texts and from the cache; measured in
separate processes.
"""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "streaming.py"
PAIRS, BUFFER = 60_000, 8_192
ALL_IDS = 2 * PAIRS * 30 * 4 / 2**20  # MB, of about 30 tokens a side
SLACK = 6  # MB


def start(way, cache):
    sizes = ["--pairs", str(PAIRS), "--buffer", str(BUFFER), "--cache", str(cache)]
    command = [sys.executable, BENCHMARK, "--way", way, *sizes]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def peaks(process):
    """The greatest memory, MB, after each fifth of the pairs."""
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    return {int(count): float(memory) for count, memory, _ in map(str.split, lines)}


# Reads all pairs three times, in three processes.
@pytest.mark.long
def test_memory_is_constant_in_pairs(tmp_path):
    assert ALL_IDS > 2 * SLACK
    texts, written = start("texts", tmp_path / "cache"), start("write cache", tmp_path / "cache")
    written = peaks(written)
    from_texts, from_cache = peaks(texts), peaks(start("cache", tmp_path / "cache"))
    for memory in (from_texts, from_cache):
        assert list(memory) == [0, *(PAIRS * fifth // 5 for fifth in range(1, 6))]
        assert memory[PAIRS] - memory[PAIRS * 2 // 5] < SLACK
    assert written[PAIRS] - from_texts[PAIRS * 2 // 5] < SLACK
