"""Which tests run, and what the end of a run lists or refuses."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SUITE = """
import pytest, run_wide, time

def work():
    end = time.process_time() + 0.4
    while time.process_time() < end: pass

@pytest.fixture
def fixture(): work()

def test_fixture(fixture): pass
def test_slow(): work()
def test_change(): run_wide.made_once("file", lambda path: path.touch()).write_text("text")

@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_long(number): pass
"""
LONG_MODULE = """
import pytest

pytestmark = pytest.mark.long

@pytest.mark.parametrize("number", range(20))
def test_sharing(number): pass
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a suite with a limit of 0.2 s; gives the output, and the seconds of tests that ran."""
    conftest = (TESTS / "conftest.py").read_text() + "\nprocessor_seconds.LIMIT = 0.2\n"
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "tfk_transformer.py").touch()  # No test here needs the library.
    (tmp_path / "test_them.py").write_text(SUITE)
    (tmp_path / "test_module.py").write_text(LONG_MODULE)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # Plugins take 1.5 s to import.

    def call(*options):
        command = [sys.executable, "-m", "pytest", "-p", "xdist", "--processor-times=times"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=tmp_path)
        tests = map(json.loads, (tmp_path / "times").read_text().splitlines())
        ran = {each["test"].partition("::")[2]: each for each in tests if "call" in each}
        return done.stdout, ran

    return call


def test_end_of_run_lists_slow_and_long_tests_and_changes(run):
    output, seconds = run("-n", "1")
    assert seconds["test_fixture"]["setup"] > 0.2 > seconds["test_fixture"]["call"]
    assert re.findall(r"(?m)^ +[\d.]+ s  test_them.py::(.+)$", output) == ["test_slow"]
    assert "\n   22  long: ./scripts/test --all runs them too\n" in output
    assert "AssertionError: a test changed files that all tests read" in output


def test_long_tests_are_selected(run):
    options = ("--long=1/2", "--long=2/2", "test_them.py::test_long")
    first, second, named = (run("-k", "test_long", each)[1].keys() for each in options)
    assert first | second == named == {"test_long[1]", "test_long[2]"}
    assert not first & second


def test_long_modules_stay_together(run):
    ran = [run("-k", "sharing", f"--long={part}/2")[1] for part in (1, 2)]
    assert sorted(map(len, ran)) == [0, 20]
