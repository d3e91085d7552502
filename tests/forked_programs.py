"""Python programs for tests, run in forks of a process that has imported TensorFlow.

    from forked_programs import run_program

    done = run_program([sys.executable, "-c", code, path], cwd=tmp_path)
    assert done.returncode == 0, done.stderr

This is `subprocess.run(command, capture_output=True, text=True)` without the four seconds of
imports, for `python -c CODE`, `python FILE`, `python -m MODULE`, and commands that .venv/bin holds
(`tfk-transformer`), each with arguments. Any other command, and one with other environment
variables than those that a program may read late (`LATE`), starts a process of its own.

Tests of the process itself use `subprocess`: what is imported and when, how the environment acts,
signals, terminals, threads, limits of memory. In a fork everything is imported already.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import processor_seconds
import run_wide
from filelock import FileLock

# What programs read when they run, not when packages are imported.
LATE = {"COLUMNS", "LINES", "HOME", "NO_COLOR", "OLDPWD", "PATH", "PWD", "TERM", "TMPDIR"}
LATE_PREFIXES = ("PYTEST_", "TFK_TRANSFORMER_")
# The environment before this test, set by conftest.py: packages, the library and earlier tests have
# left variables in it, which a program sets itself if need be.
left_behind: Mapping[str, str] = {}
SCRIPTS = Path(sys.executable).parent
SERVER = Path(__file__).with_name("fork_server.py")
START_SECONDS = 300


def run_program(command, *, cwd=None, env=None, input=None, timeout=None, stderr=None, text=True):
    """Run a Python program and return what `subprocess.run` would, with the output captured.

    Args:
        command: the program and its arguments, as for `subprocess.run`.
        cwd: the folder to run in. Default: that of this process.
        env: all environment variables. Default: those of this process.
        input: what the program reads from standard input. Default: nothing.
        timeout: seconds after which the program is killed.
        stderr: `subprocess.STDOUT` joins standard error to standard output.
        text: whether `input` and the output are text.

    Raises:
        subprocess.TimeoutExpired: as `subprocess.run`.
    """
    command = [os.fspath(part) for part in command]
    if (SCRIPTS / command[0]).is_file():
        command[0] = str(SCRIPTS / command[0])
    forked, variables = forked_command(command), late_variables(os.environ if env is None else env)
    if forked is None or variables is None:
        return subprocess.run(
            command,
            cwd=cwd,
            env=env,
            input=input,
            timeout=timeout,
            stdout=subprocess.PIPE,
            stderr=stderr or subprocess.PIPE,
            text=text,
        )
    request = {"command": forked, "cwd": os.path.abspath(cwd or os.getcwd()), "env": variables}
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write((input or "").encode() if text else (input or b""))
        given.seek(0)
        streams = [given, out, out if stderr == subprocess.STDOUT else err]
        returncode, late = _run(request, streams, timeout)
        written = []
        for file in (out, err):
            file.seek(0)
            written.append(file.read().decode() if text else file.read())
    output, errors = written[0], None if stderr == subprocess.STDOUT else written[1]
    if late:
        raise subprocess.TimeoutExpired(command, timeout, output, errors)
    return subprocess.CompletedProcess(command, returncode, output, errors)


def forked_command(command: list[str]) -> list[str] | None:
    """Return how the server runs a command; None if only a process of its own can run it."""
    if sys.platform != "linux":
        return None
    program, *arguments = command
    if program == sys.executable:
        if arguments[:1] in (["-c"], ["-m"]):
            return arguments
        return ["", *arguments] if arguments and not arguments[0].startswith("-") else None
    file, interpreter = Path(program), f"#!{sys.executable}\n".encode()
    if file.parent == SCRIPTS and file.is_file() and file.read_bytes().startswith(interpreter):
        return ["", *command]
    return None


def late_variables(env: Mapping[str, str]) -> dict[str, str] | None:
    """Return the variables of a fork; None if others than late ones differ from the server's."""
    served = dict(run_wide.ENVIRONMENT)
    for name in {*env, *served}:
        if env.get(name) == served.get(name):
            continue
        if name not in run_wide.ENVIRONMENT and env.get(name) == left_behind.get(name):
            continue
        if name not in LATE and not name.startswith(LATE_PREFIXES):
            return None
        served.pop(name, None)
        if name in env:
            served[name] = env[name]
    return served


def _run(request: dict, streams: list, timeout: float | None) -> tuple[int, bool]:
    """Return the exit code of a program of the server, and whether it was killed in the end."""
    with _connection() as connection:
        text, late = json.dumps(request).encode(), False
        descriptors = [stream.fileno() for stream in streams]
        socket.send_fds(connection, [len(text).to_bytes(4, "big")], descriptors)
        connection.sendall(text)
        with connection.makefile("r") as answers:
            program = json.loads(answers.readline())["pid"]
            connection.settimeout(timeout)
            try:
                line = answers.readline()
            except TimeoutError:
                late = True
        if late:
            with contextlib.suppress(ProcessLookupError):
                os.kill(program, signal.SIGKILL)
            connection.settimeout(None)
            line = connection.recv(1000)
    end = json.loads(line)
    processor_seconds.add_program(end["seconds"])
    return end["returncode"], late


def _connection() -> socket.socket:
    """Return a connection to the server of this run, which the first process that asks starts."""
    address = run_wide.folder / "programs.socket"
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(address))
        return connection
    except OSError:
        pass
    with FileLock(f"{address}.lock"):
        if not address.exists():
            _start(address)
        connection.connect(str(address))
    return connection


def _start(address: Path) -> None:
    """Start the server, and wait until it has imported everything."""
    log = address.with_suffix(".log")
    with open(log, "wb") as file:
        command = [sys.executable, str(SERVER), str(address), str(run_wide.process)]
        streams = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
        subprocess.run(
            command, env=run_wide.ENVIRONMENT, cwd=run_wide.folder, check=True, **streams
        )
    last = time.monotonic() + START_SECONDS
    while not address.exists():
        if time.monotonic() > last or "Traceback" in log.read_text(errors="replace"):
            raise RuntimeError(f"the fork server did not start: {log.read_text(errors='replace')}")
        time.sleep(0.05)
