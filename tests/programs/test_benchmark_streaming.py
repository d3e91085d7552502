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
    command = [
        sys.executable,
        BENCHMARK,
        "--way",
        way,
        "--pairs",
        str(PAIRS),
        "--buffer",
        str(BUFFER),
        "--cache",
        cache,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def peaks(process):
    """The greatest memory, MB, after each fifth of the pairs."""
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    return {int(count): float(memory) for count, memory, _ in map(str.split, lines)}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Of each way to read."""
    cache = tmp_path_factory.mktemp("streaming") / "cache"
    texts, written = start("texts", cache), start("write cache", cache)
    whole = peaks(written)
    return {"texts": peaks(texts), "write cache": whole, "cache": peaks(start("cache", cache))}


@pytest.mark.parametrize("way", ["texts", "cache"])
def test_memory_is_constant_in_pairs(found, way):
    assert ALL_IDS > 2 * SLACK
    memory = found[way]
    assert list(memory) == [0, *(PAIRS * fifth // 5 for fifth in range(1, 6))]
    assert memory[PAIRS] - memory[PAIRS * 2 // 5] < SLACK


def test_cache_write_memory_stays_low(found):
    assert found["write cache"][PAIRS] - found["texts"][PAIRS * 2 // 5] < SLACK
