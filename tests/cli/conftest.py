"""Fixtures of the tests of the command line."""

import io
import sys

import pytest

from tfk_transformer.cli import main as cli


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line in this process; gives (exit status, standard output, standard error)."""

    def call(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["tfk-transformer", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with pytest.raises(SystemExit) as end:
            cli.main()
            raise SystemExit(0)
        return end.value.code, *capsys.readouterr()

    return call


@pytest.fixture(params=["bundle", "saved_model", "translate.onnx"])
def model(request, bundle, exported):
    """Each kind of MODEL that translates."""
    return bundle if request.param == "bundle" else exported / request.param
