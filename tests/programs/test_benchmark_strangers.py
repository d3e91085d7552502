"""The attacks on the server, small: real servers and real clients."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


# Starts six servers, and sends thousands of requests.
@pytest.mark.long
def test_benchmark_answers_after_attacks():
    pytest.importorskip("aiohttp")
    model = REPOSITORY / "tests" / "saved_files" / "translate.onnx"
    sizes = ["--seconds", "1", "--requests", "200", "--min-length", "23"]
    command = [sys.executable, REPOSITORY / "benchmarks" / "strangers.py", model, *sizes]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert "; the next: 200 after " in lines["vanishing clients"]
    assert lines["an expensive request"].startswith("one text: 200 after ")
    assert lines["many settings"].startswith("{200: ")
    assert "requests/s, p50 " in lines["honest clients"]
    assert not lines["and a greedy one"].endswith("; 0 expensive requests")
    assert lines["memory"].endswith("; the last answer: 200")
