"""Which tests run, how long they may take, and what the end of a run says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import processor_seconds
import pytest
from tiers import part

TESTS = Path(__file__).parent
SUITE = """
import subprocess, sys, time
import pytest

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

PROGRAM = "import time\\nwhile time.process_time() < 0.3: pass"

@pytest.fixture(scope="session")
def shared():
    work(0.3)
    yield
    work(0.3)

@pytest.fixture
def own():
    work(0.1)
    yield
    work(0.1)

def test_first(shared, request):
    request.getfixturevalue("late")

@pytest.fixture(scope="module")
def late():
    work(0.3)

def test_second(shared, own):
    work(0.1)

def test_program():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)

@pytest.mark.long
def test_long():
    work(0.3)

@pytest.mark.long
def test_longer():
    pass
"""


@pytest.fixture
def suite(tmp_path):
    """Run a suite in which the limit is a tenth of a second; gives the output and the figures."""
    text = (TESTS / "conftest.py").read_text()
    lines = (
        "import processor_seconds\nprocessor_seconds.LIMIT = 0.1\nprocessor_seconds.slowness "
        "= lambda: 1.0\n"
    )
    (tmp_path / "conftest.py").write_text(text.replace("import processor_seconds\n", lines))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    (tmp_path / "test_them.py").write_text(SUITE)

    def run(*options):
        path = (
            f"import sys; sys.path.insert(1, {str(TESTS)!r}); import pytest; "
            "sys.exit(pytest.main())"
        )
        command = [
            sys.executable,
            "-c",
            path,
            "-p",
            "xdist",
            "--processor-times",
            "times",
            *options,
        ]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        lines = (tmp_path / "times").read_text().splitlines()
        figures = {each["test"].partition("::")[2]: each for each in map(json.loads, lines)}
        return done.stdout, figures

    return run


@pytest.mark.parametrize("processes", ["0", "2"])
def test_long_tests_are_left_out(suite, processes):
    output, figures = suite("-n", processes, "-k", "long or program")
    assert set(figures) == {"test_program"}
    assert (
        output.splitlines()[-1] == "2 long tests were left out; ./scripts/test --all runs them too."
    )


def test_all_option_runs_every_test(suite):
    output, figures = suite("-n", "0", "--all", "-k", "long or program")
    assert set(figures) == {"test_program", "test_long", "test_longer"}
    assert "left out" not in output


def test_each_long_test_is_in_one_part(suite):
    parts = [set(suite("-n", "0", "--long", f"{k}/2", "-k", "long")[1]) for k in (1, 2)]
    assert parts[0] | parts[1] == {"test_long", "test_longer"}
    assert not parts[0] & parts[1]


@pytest.mark.parametrize("text", ["0/2", "3/2", "half"])
def test_unknown_part_is_refused(text):
    with pytest.raises(pytest.UsageError, match="expected a part K/N of the long tests, such as"):
        part(text)


def test_named_long_tests_run(suite):
    assert set(suite("-n", "0", "test_them.py::test_longer")[1]) == {"test_longer"}
    assert set(suite("-n", "0", "-m", "long")[1]) == {"test_long", "test_longer"}
    output, figures = suite("-n", "0", "-k", "longer or second")
    assert set(figures) == {"test_second"}
    assert output.splitlines()[-1].startswith("1 long test was left out")


@pytest.mark.parametrize("processes", ["0", "1"])
def test_slow_unmarked_test_fails(suite, processes):
    output, figures = suite("-n", processes, "--all")
    seconds = {name: each["own"] + each["children"] for name, each in figures.items()}
    assert seconds["test_first"] < 0.1
    assert 0.3 <= seconds["test_second"] < 0.6
    assert figures["test_program"]["children"] >= 0.3 > figures["test_program"]["own"]
    shared = {each["name"]: each["own"] for each in figures["test_first"]["shared"]}
    assert shared["shared of test_them.py"] >= 0.3
    assert shared["late of test_them.py"] >= 0.3
    assert "5 passed, 2 errors" in output
    assert re.search(
        (
            r"test_them.py::test_second took 0\.\d processor seconds \(0\.\d in pytest's process, "
            r"0\.0 in"
        ),
        output,
    )
    assert "@pytest.mark.long" in output
    assert "test_long took" not in output


def test_slightly_slow_test_is_listed(suite, tmp_path):
    lines = (tmp_path / "conftest.py").read_text().replace("LIMIT = 0.1", "LIMIT = 0.25")
    (tmp_path / "conftest.py").write_text(lines)
    output, _ = suite("-n", "0")
    assert "3 passed, 2 deselected" in output
    section = output.partition("without the mark `long`")[2].splitlines()
    assert [line.split("::")[-1] for line in section[1:3]] in (
        ["test_second", "test_program"],
        ["test_program", "test_second"],
    )


def test_slow_machine_raises_the_limit(monkeypatch):
    monkeypatch.setattr(processor_seconds, "_computation", lambda: 3 * processor_seconds.REFERENCE)
    assert processor_seconds.slowness() == pytest.approx(3)
