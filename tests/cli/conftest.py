"""Fixtures of the tests of the command line."""

import functools
import io
import signal
import sys
from pathlib import Path

import pytest
from run_wide import content

from tfk_transformer.apps.cli import main as cli
from tfk_transformer.export.runtime import opening


@pytest.fixture
def opened_once(monkeypatch):
    """Let commands open a model only once in this process, as long as its files are the same.

    Opening one with TensorFlow, and tracing its search, takes 2 to 5 s. A command changes no model.
    """
    monkeypatch.setattr(opening, "load", load_or_recall)


def load_or_recall(path, **options):
    """Open a model as `opening.load` does, or return it if that has been done."""
    path = Path(path)
    return recalled(path, tuple(content(path)), **options)


@functools.lru_cache(maxsize=16)
def recalled(path, files, load=opening.load, **options):
    """Open a model whose files have these sizes and times."""
    return load(path, **options)


@pytest.fixture
def run(monkeypatch, capsys, opened_once):
    """Run the command line in this process; gives (exit status, standard output, standard
    error).
    """

    def call(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["tfk-transformer", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with pytest.raises(SystemExit) as end:
            cli.main()
            raise SystemExit(0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return end.value.code, *capsys.readouterr()

    return call


@pytest.fixture(params=["bundle", "saved_model", "translate.onnx"])
def model(request, bundle, exported):
    """Each kind of MODEL that translates."""
    return bundle if request.param == "bundle" else exported / request.param
