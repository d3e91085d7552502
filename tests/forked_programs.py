"""Python programs for tests, run in forks of a process that has imported TensorFlow.

    from forked_programs import run_program

    done = run_program([sys.executable, "-c", code, path], cwd=tmp_path)
    assert done.returncode == 0, done.stderr

This is `subprocess.run(command, capture_output=True, text=True)` without the four seconds of
imports, for `python -c CODE`, `python FILE` and `python -m MODULE`, each with arguments. A program
with other environment variables that packages read when they are imported (`fork_server.AT_IMPORT`)
starts a process of its own.

Tests of the process itself use `subprocess`: what is imported and when, how the environment acts,
signals, terminals, threads, limits of memory. In a fork everything is imported already.
"""

import os
import subprocess
import sys
from pathlib import Path

import processor_seconds
import run_wide

TESTS = Path(__file__).parent


def run_program(command, **options):
    """Run a Python program and return what `subprocess.run` does, with the output captured.

    Args:
        command: `sys.executable` and its arguments.
        options: of `subprocess.run`.
    """
    program, *arguments = map(str, command)
    assert program == sys.executable, program
    options = {"capture_output": True, "text": True, "input": ""} | options
    return subprocess.run([*python(), *arguments], **options)


def python() -> list[str]:
    """Return the command `python` that runs its program in a fork, which only Linux does."""
    if sys.platform != "linux":
        return [sys.executable]
    address = run_wide.made_once("programs.socket", start_server)
    seconds = processor_seconds.programs = run_wide.folder / f"programs-{os.getpid()}.txt"
    return [sys.executable, "-I", "-S", str(TESTS / "fork_client.py"), str(address), str(seconds)]


def start_server(address: Path) -> None:
    """Start the server of this run of the tests, which ends with the run."""
    command = [sys.executable, TESTS / "fork_server.py", address, str(run_wide.process)]
    env, stdin = run_wide.ENVIRONMENT, subprocess.DEVNULL
    with open(run_wide.folder / "programs.log", "wb") as log:
        subprocess.run(command, check=True, env=env, stdin=stdin, stdout=log, stderr=log)
