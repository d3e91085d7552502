"""The load benchmark, small: real servers and a real client."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


# Starts two servers and a client, and a search in the process.
@pytest.mark.long
def test_benchmark_loses_no_request(tmp_path):
    pytest.importorskip("aiohttp")
    texts = tmp_path / "texts"
    texts.write_text("forty-two\nseven\n\none hundred seven\n")
    model = REPOSITORY / "tests" / "saved_files" / "translate.onnx"
    sizes = [
        "--requests",
        "120",
        "--at-once",
        "8",
        "--rounds",
        "1",
        "--growth",
        "100",
        "--serve=--drain-delay 0",
    ]
    command = [sys.executable, REPOSITORY / "benchmarks" / "serve.py", model, texts, *sizes]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "132 requests in all, 0 lost; the servers ended with status [0, 0]." in done.stdout
    rows = dict(
        re.findall(
            r"│ (in process|in process, sorted|server|server, unbatched) +│ +(\d+)", done.stdout
        )
    )
    assert set(rows) == {"in process", "in process, sorted", "server", "server, unbatched"}
    assert "Memory of the server over 100 requests, 0 lost; it ended with status 0." in done.stdout
