"""The process of a command: closed standard streams, pipes that end early, and Ctrl-C."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = Path(__file__).parents[1] / "saved_files" / "translate.onnx"
# Output that is buffered fails only at the end.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
CLOSED = "error: standard output is closed; redirect it to a file or to /dev/null\n"
FULL = (
    "error: [Errno 28] No space left on device; free some space on the output's disk, and run the "
    "command again\n"
)


def shell(line):
    """Run a line of Bash; gives its status, standard output and standard error."""
    python = f"{shlex.quote(sys.executable)} -m tfk_transformer"
    line = line.replace("PROGRAM", python).replace("MODEL", shlex.quote(str(SMALL)))
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=BUFFERED,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("PROGRAM translate MODEL one >&-", (1, "", CLOSED)),
        ("PROGRAM --version >&-", (1, "", CLOSED)),
        (
            "PROGRAM translate MODEL <&-",
            (1, "", "error: input: expected one sentence per line, got no lines.\n"),
        ),
        # The report of the blank line does not go to the output.
        (r"printf 'one\n\xff\n' | PROGRAM translate MODEL --on-error skip 2>&-", (0, "eins\n", "")),
        ("PROGRAM --version >/dev/full", (1, "", FULL)),
    ],
)
def test_closed_streams_are_clear(line, expected):
    assert shell(line) == expected


def test_early_end_of_pipe_is_silent():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "tfk_transformer", "--version"],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=BUFFERED,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_closed_output_shows_no_progress(monkeypatch):
    """A training run in the background needs no standard output."""
    from tfk_transformer.apps.cli.commands.train import printer

    with open("/dev/null") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        printer(quiet=False)("epoch 1")


PRESSED = """
import atexit, signal, sys
class Finder:
    def find_spec(name, *_):
        if name == {module!r}:
            {press}
sys.meta_path.insert(0, Finder)
sys.argv = ["tfk-transformer", "translate", {model!r}, "one"]
atexit.register(lambda: {at_exit})
from tfk_transformer.apps.cli.main import main
main()
"""
PRESS = "signal.raise_signal(signal.SIGINT)"
# As pybind11 does when a module of C++ is imported.
TURNED = f"""try:
                {PRESS}
            except KeyboardInterrupt:
                raise ImportError("initialization failed")"""


@pytest.mark.parametrize(
    ("module", "press", "at_exit", "status"),
    [
        ("typer", PRESS, "0", 130),
        ("onnxruntime", TURNED, "0", 130),
        ("onnxruntime", PRESS, PRESS, -signal.SIGINT),  # 130 in a shell
    ],
    ids=["start", "library", "twice"],
)
def test_ctrl_c_ends_silently(module, press, at_exit, status):
    code = PRESSED.format(module=module, press=press, at_exit=at_exit, model=str(SMALL))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
