"""Fixtures that several tests share: a trained model, its bundle and its export. Options that
select long tests, and a list of what a run left out.
"""

import collections
import gc
import os
import subprocess
import zlib
from pathlib import Path

import processor_seconds
import pytest
import run_wide
from number_files import number_files_spec, write_number_files
from run_wide import made_once

import tfk_transformer as tfk

os.environ.update(run_wide.ENVIRONMENT)
REPOSITORY = Path(__file__).parents[1]


def part(text):
    """Return K and N of "K/N"."""
    k, n = map(int, text.split("/"))
    if not 1 <= k <= n:
        raise ValueError(text)
    return k, n


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run the tests with the mark `long` too")
    text = "also run part K of N of the tests with the mark `long`, such as 1/6"
    parser.addoption("--long", type=part, metavar="K/N", help=text)
    text = "write the processor seconds of each test to this file, as JSON lines"
    parser.addoption("--processor-times", metavar="FILE", help=text)


def pytest_configure(config):
    config.pluginmanager.register(processor_seconds)


def pytest_collection_modifyitems(config, items):
    """Skip long tests, unless options or the name of a test select tests."""
    named = config.getoption("markexpr") or any("::" in each for each in config.args)
    if config.getoption("all") or named:
        return
    k, n = config.getoption("long") or (0, 1)
    for item in items:
        for node, _ in item.iter_markers_with_node("long"):
            # A test stays in its part when other tests come and go. The tests of a module that has
            # the mark stay together, because they share a fixture that takes long.
            if zlib.crc32(node.nodeid.encode()) % n != k - 1:
                item.add_marker(pytest.mark.skip("long: ./scripts/test --all runs them too"))
            break


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    """Print the number of tests that were skipped, by reason."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = [each.longrepr[2].removeprefix("Skipped: ") for each in reports]
    counts = collections.Counter(reason.partition(": No module")[0] for reason in reasons)
    if counts:
        terminalreporter.section("left out")
    for reason, count in counts.most_common():
        terminalreporter.line(f"{count:5}  {reason}")


def pytest_collection_finish():
    """Search for garbage less often, and not in what was imported.

    Tracing makes many objects that stay. In tests of searches, looking at them again and again took
    a tenth of the processor time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def run_folder(tmp_path_factory, request):
    """The folder of this run of the tests, which the processes of pytest-xdist share."""
    own, distributed = tmp_path_factory.getbasetemp(), hasattr(request.config, "workerinput")
    run_wide.folder = (own.parent if distributed else own) / "made_once"
    run_wide.process = os.getppid() if distributed else os.getpid()
    yield run_wide.folder
    assert run_wide.changed() == [], "a test changed files that all tests read; it should copy them"


@pytest.fixture(scope="session")
def recipe():
    """A recipe that takes seconds: the numbers below 200."""
    data = made_once("numbers", lambda folder: write_number_files(folder, range(200)))
    return tfk.Recipe(
        data=number_files_spec(data),
        source_language="en",
        target_language="de",
        preset="tiny",
        vocab_size=80,
        max_length=32,
        batch_tokens=512,
        epochs=25,
        learning_rate=3e-3,
        warmup_steps=30,
        label_smoothing=0.0,
    )


@pytest.fixture(scope="session")
def bundle(recipe):
    """The bundle of that recipe. It is read only, like all that is made once a run."""
    return made_once("bundle/numbers", lambda path: tfk.train(recipe, path, say=lambda line: None))


@pytest.fixture(scope="session")
def translator(bundle):
    """That bundle, loaded."""
    return tfk.Translator.load(bundle)


@pytest.fixture(scope="session")
def exported(translator):
    """Its SavedModel and ONNX files."""
    return made_once("export/numbers", lambda path: tfk.export(translator, path))


@pytest.fixture
def small_disk(tmp_path):
    """A disk of six megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
