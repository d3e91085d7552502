"""Which tests run, and what the end of a run lists."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SUITE = """
import time, pytest

def work():
    end = time.process_time() + 0.4
    while time.process_time() < end: pass

@pytest.fixture
def fixture(): work()

def test_fixture(fixture): pass
def test_slow(): work()

@pytest.mark.parametrize("number", [1, 2, 3])
def test_skipped(number): pytest.skip("no browser")

@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_long(number): work()
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a suite with a limit of 0.2 s; gives the output, and the seconds of tests by name."""
    conftest = (TESTS / "conftest.py").read_text() + "\nprocessor_seconds.LIMIT = 0.2\n"
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "tfk_transformer.py").touch()  # No test here needs the library.
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    (tmp_path / "test_them.py").write_text(SUITE)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # Plugins take 1.5 s to import.

    def call(*options):
        command = [sys.executable, "-m", "pytest", "-p", "xdist", "--processor-times=times"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=tmp_path)
        tests = map(json.loads, (tmp_path / "times").read_text().splitlines())
        return done.stdout, {test["test"].partition("::")[2]: test for test in tests}

    return call


def test_end_of_run_lists_slow_and_left_out_tests(run):
    output, seconds = run("-n", "1")
    assert seconds["test_fixture"]["setup"] > 0.2 > seconds["test_fixture"]["call"]
    assert re.findall(r"(?m)^ +[\d.]+ s  test_them.py::(.+)$", output) == ["test_slow"]
    assert "    3  no browser\n    2  long: ./scripts/test --all runs them too\n" in output


def test_long_tests_are_selected(run):
    runs = [run(option) for option in ("--long=1/2", "--long=2/2", "test_them.py::test_long")]
    first, second, named = (
        {name for name in seconds if "test_long" in name and "call" in seconds[name]}
        for _, seconds in runs
    )
    assert first | second == named == {"test_long[1]", "test_long[2]"}
    assert not first & second
