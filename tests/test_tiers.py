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
import subprocess, sys, time
import pytest

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.fixture(scope="module")
def shared():
    work(1.1)

def test_shared(shared):
    pass

def test_work():
    work(1.1)

def test_program():
    program = "import time\\nwhile time.process_time() < 1.1: pass"
    subprocess.run([sys.executable, "-c", program], check=True)

@pytest.mark.parametrize("number", [1, 2, 3])
def test_skipped(number):
    pytest.skip("no browser")

@pytest.mark.long
def test_long():
    pass

@pytest.mark.long
def test_longer():
    pass
"""


@pytest.fixture
def run(tmp_path):
    """Run a suite in which the limit is a second; gives the output and the figures by test."""
    conftest = (TESTS / "conftest.py").read_text() + "\nprocessor_seconds.LIMIT = 1.0\n"
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    (tmp_path / "test_them.py").write_text(SUITE)
    env = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "--processor-times=times"]

    def call(*options):
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, cwd=tmp_path, env=env
        )
        times = tmp_path / "times"
        lines = times.read_text().splitlines() if times.exists() else []
        figures = {each["test"].partition("::")[2]: each for each in map(json.loads, lines)}
        return done.stdout + done.stderr, figures

    return call


@pytest.mark.parametrize("processes", ["0", "2"])
def test_end_of_run_names_slow_and_left_out_tests(run, processes):
    output, figures = run("-n", processes)
    assert figures["test_work"]["call"] >= 1.1
    assert figures["test_program"]["call"] >= 1.1
    assert figures["test_shared"]["setup"] >= 1.1 > figures["test_shared"]["call"]
    ends = re.findall(r"(?m)^ +[\d.]+ s  test_them.py::(\w+)|^ +(\d  .*)", output)
    assert sorted(ends) == [
        ("", "2  long: ./scripts/test --all runs them too"),
        ("", "3  no browser"),
        ("test_program", ""),
        ("test_work", ""),
    ]
    assert "3 passed, 3 skipped" in output


def test_long_tests_are_selected(run):
    both = {"test_long", "test_longer"}
    parts = [set(run("--long", f"{k}/2", "-k", "long")[1]) for k in (1, 2)]
    assert parts[0] | parts[1] == both
    assert not parts[0] & parts[1]
    output, figures = run("--all", "-k", "long")
    assert set(figures) == set(run("-m", "long")[1]) == both
    assert "left out" not in output
    assert set(run("test_them.py::test_longer")[1]) == {"test_longer"}
    assert "--long: expected a part K/N, such as 1/3, got '3/2'" in run("--long", "3/2")[0]
