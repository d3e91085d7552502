"""Texts of users and of files on the terminal: control characters, narrow and ASCII terminals."""

import io
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
from terminal import Terminal

from tfk_transformer.apps.cli import main as cli
from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.config.words import escape_controls

SMALL = Path(__file__).parents[1] / "saved_files" / "translate.onnx"
RED = "\x1b[31m"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"}


def test_controls_become_escapes():
    assert escape_controls("a\x1b[2J\x07\r\x7f\x9b8m\u202e\u2069") == (
        r"a\x1b[2J\x07\r\x7f\x9b8m\u202e\u2069"
    )
    kept = "ü\t\n\xa0\u200d\u200f👩\u200d💻"  # joiners and marks that texts need
    assert escape_controls(kept) == kept


def test_only_terminals_get_escapes(monkeypatch):
    pipe, terminal = io.StringIO(), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    for file in (pipe, terminal):
        print_line(f"{RED}a\nb", file)
    assert pipe.getvalue() == f"{RED}a\nb\n"
    assert terminal.getvalue() == "\\x1b[31ma\\nb\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", SMALL, "--input", "{name}"],
        ["translate", SMALL, "one", "--setting", "{name}=1"],
        ["translate", SMALL, "one", "--{name}"],  # an error of Click
        ["translate", "--on-error", "{name}"],
        ["{name}"],
        ["train", "--preset", "{name}", "--data", "numbers:en-de", "--out", "x"],
    ],
)
def test_errors_have_no_controls(run, monkeypatch, arguments):
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich's own styles stay
    name = f"{RED}[bold]:bug:"
    status, out, error = run(*(str(argument).format(name=name) for argument in arguments))
    assert status in (1, 2)
    assert out == ""
    assert RED not in error
    assert r"\x1b[31m[bold]:bug:" in error


def test_bad_line_reports_are_escaped(run, tmp_path):
    file = tmp_path / RED
    file.write_bytes(b"one\n\xff\n")
    status, _, error = run("translate", SMALL, "--input", file, "--on-error", "skip")
    assert status == 0
    assert RED not in error
    assert r"/\x1b[31m:2:" in error


def test_unexpected_errors_are_escaped(capsys):
    cli._print_traceback(RuntimeError, RuntimeError(RED), None)
    assert capsys.readouterr().err == "RuntimeError: \\x1b[31m\n"


def test_tables_have_no_controls(run, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "160")
    model = tmp_path / f"{RED}:bug:.onnx"
    shutil.copyfile(SMALL, model)
    status, out, _ = run("inspect", model)
    assert status == 0
    assert RED not in out
    assert out.count(r"\x1b[31m:bug:.onnx") == 2


def test_terminal_shows_escaped_texts(run, monkeypatch):
    arguments = ["translate", SMALL, "one\u202e", "--json"]
    assert '"source": "one\u202e"' in run(*arguments)[1]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert r'"source": "one\u202e"' in run(*arguments)[1]


@pytest.mark.parametrize("width", ["0", "-1", "1", "40", "9" * 20, "²"])
def test_tables_are_whole_on_any_terminal(run, monkeypatch, width):
    def cells(width):
        monkeypatch.setenv("COLUMNS", width)
        status, out, error = run("inspect", SMALL)
        assert (status, error) == (0, "")
        return Counter(re.sub(r"[\s\u2500-\u257f]", "", out))

    assert cells(width) == cells("160")


@pytest.mark.parametrize("width", [1, 10, 30])
def test_help_fits_narrow_terminals(run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for name in ("", "translate"):
        status, out, error = run(*name.split(), "--help")
        assert (status, error) == (0, "")
        body = out.partition("\nExamples\n")[0].splitlines()
        assert max(map(len, body)) <= max(width, 20)


def test_ascii_terminals_get_escapes(tmp_path):
    words = tmp_path / "words.tsv"
    words.write_text("twelve\tzwölf\n", encoding="utf-8")
    data = ["--data", f"tsv:{words}", "--split", "all"]
    # A spinner and tables, and a translation with an umlaut.
    assert Terminal("evaluate", SMALL, *data, **ASCII).end()[0] == 0
    assert Terminal("translate", SMALL, "twelve", **ASCII).end() == (0, "zw\\xf6lf\r\n")


def test_pipes_get_utf8_everywhere(run, monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    assert run("translate", SMALL, "twelve")[0] == 0
    assert output.buffer.getvalue() == "zwölf\n".encode()


@pytest.mark.parametrize("text", ["[" * 10_000, "{a=" * 10_000])
def test_deep_recipes_are_refused(run, tmp_path, text):
    file = tmp_path / "deep.toml"
    file.write_text(f"data = {text}")
    status, _, error = run("train", file, "--out", tmp_path / "x")
    assert (status, error) == (
        1,
        f"error: recipe: expected TOML in {file}, got too many nested brackets.\n",
    )
