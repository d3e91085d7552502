"""Python programs for tests, run in forks of a process that has imported TensorFlow.

`run_program([sys.executable, "-c", code, path], cwd=tmp_path)` is `subprocess.run` without the four
seconds of imports, for `python -c CODE`, `python FILE` and `python -m MODULE` with arguments. It
starts `fork_client.py`, which asks `fork_server.py`, a process of the run, for a fork. A program
with other environment variables that packages read when they are imported (`fork_server.AT_IMPORT`)
starts a process of its own.

Tests of the process itself use `subprocess`: what is imported and when, how the environment acts,
signals, terminals, threads, limits of memory. In a fork everything is imported already.
"""

import os
import subprocess
import sys
from pathlib import Path

import run_wide

TESTS = Path(__file__).parent
# The processor seconds of each program that this process ran in a fork, a line each.
_seconds: Path | None = None


def run_program(command, **options):
    """Run a Python program: `subprocess.run`, with its options, and with the output captured."""
    program, *arguments = map(str, command)
    assert program == sys.executable, program
    options = {"capture_output": True, "text": True, "input": ""} | options
    return subprocess.run([*python(), *arguments], **options)


def python() -> list[str]:
    """Return the command `python` that runs its program in a fork, which only Linux does."""
    global _seconds
    if sys.platform != "linux":
        return [sys.executable]
    address = run_wide.made_once("programs.socket", start_server)
    _seconds = run_wide.folder / f"programs-{os.getpid()}.txt"
    return [sys.executable, "-I", "-S", str(TESTS / "fork_client.py"), str(address), str(_seconds)]


def start_server(address: Path) -> None:
    """Start the server of this run of the tests, which ends with the run."""
    command = [sys.executable, TESTS / "fork_server.py", address, str(run_wide.process)]
    env, stdin = run_wide.ENVIRONMENT, subprocess.DEVNULL
    with open(run_wide.folder / "programs.log", "wb") as log:
        subprocess.run(command, check=True, env=env, stdin=stdin, stdout=log, stderr=log)


def processor_seconds() -> float:
    """Return the processor seconds of the programs that this process ran in forks."""
    lines = _seconds.read_text().split() if _seconds and _seconds.exists() else []
    return sum(map(float, lines))
