"""The load benchmark, with few requests: real servers and real clients."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


# Starts three servers, their clients, and a search in a process of its own.
@pytest.mark.long
def test_serve_loses_no_request(tmp_path):
    pytest.importorskip("aiohttp")
    (tmp_path / "texts").write_text("forty-two\nseven\n\none hundred seven\n")
    model = REPOSITORY / "tests" / "saved_files" / "translate.onnx"
    command = [sys.executable, REPOSITORY / "benchmarks" / "serve.py", model, tmp_path / "texts"]
    small = "--requests 120 --at-once 8 --rounds 1 --growth 100".split()
    done = subprocess.run(
        [*command, *small, "--serve=--drain-delay 0"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "132 requests in all, 0 lost; the servers ended with status [0, 0]." in done.stdout
    rows = re.findall(r"│ ((?:in process|server)[a-z, ]*?) +│ +\d+ ", done.stdout)
    assert rows == ["in process", "server", "server, unbatched", "in process, sorted"]
    assert "Memory of the server over 100 requests, 0 lost; it ended with status 0." in done.stdout
