"""Which tests run, and what the end of a run says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SUITE = """
import os, subprocess, sys, time
import pytest

WORK = "import time\\nend = time.process_time() + 1.1\\nwhile time.process_time() < end: pass"

@pytest.fixture
def work():
    exec(WORK)

def test_fixture(work): pass
def test_own(): exec(WORK)
def test_program(): subprocess.run([sys.executable, "-c", WORK], check=True)

@pytest.mark.parametrize("number", [1, 2, 3])
def test_skipped(number): pytest.skip("no browser")

@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_long(number): pass
"""


@pytest.fixture
def run(tmp_path):
    """Run a suite in which the limit is a second; gives the output and the seconds by test."""
    conftest = (TESTS / "conftest.py").read_text() + "\nprocessor_seconds.LIMIT = 1.0\n"
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    (tmp_path / "test_them.py").write_text(SUITE)
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "pytest", "--processor-times=times"]

    def call(*options):
        run = subprocess.run(
            [*command, *options], capture_output=True, text=True, cwd=tmp_path, env=env
        )
        lines = (tmp_path / "times").read_text().splitlines()
        seconds = {each["test"].partition("::")[2]: each for each in map(json.loads, lines)}
        return run.stdout, seconds

    return call


def test_end_of_run_lists_slow_and_left_out_tests(run):
    output, seconds = run("-n", "1")
    assert all(seconds[name]["call"] > 1 for name in ("test_own", "test_program"))
    assert seconds["test_fixture"]["setup"] > 1 > seconds["test_fixture"]["call"]
    slow = re.findall(r"(?m)^ +[\d.]+ s  test_them.py::(\w+)$", output)
    assert sorted(slow) == ["test_own", "test_program"]
    assert "    2  long: ./scripts/test --all runs them too\n    3  no browser\n" in output


def test_long_tests_are_selected(run):
    names = {"test_long[1]", "test_long[2]"}
    parts = [set(run("--long", f"{k}/2", "-k", "long")[1]) for k in (1, 2)]
    assert parts[0] | parts[1] == names
    assert not parts[0] & parts[1]
    assert set(run("test_them.py::test_long")[1]) == names
