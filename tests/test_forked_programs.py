"""Programs in forks behave like programs in processes of their own."""

import os
import re
import signal
import subprocess
import sys
import time

import forked_programs
import pytest
import run_wide
from forked_programs import SCRIPTS, forked_command, late_variables, run_program

PRINT_PARENT = "import os; print(os.getppid())"


def both_ways(command, **options):
    """Run a program in a fork and in a process of its own."""
    given = {"input": "", **options}
    own = subprocess.run(command, capture_output=True, text=True, **given)
    return run_program(command, **options), own


def outcome(done):
    return done.returncode, done.stdout, done.stderr


def test_fork_has_tensorflow_imported():
    names = "'tensorflow' in sys.modules, 'tfk_transformer.apps.cli.main' in sys.modules"
    code = f"import sys; print({names})"
    assert outcome(run_program([sys.executable, "-c", code])) == (0, "True True\n", "")
    parents = {run_program([sys.executable, "-c", PRINT_PARENT]).stdout for _ in range(2)}
    assert len(parents) == 1
    assert parents != {f"{os.getpid()}\n"}


@pytest.mark.parametrize(
    "code",
    [
        "print('out'); import sys; print('err', file=sys.stderr)",
        "import sys; print(sys.argv, sys.path[0]); print(sys.stdin.read())",
        "print(__name__, __builtins__.len('four'), sorted(n for n in globals() if n[0] != '_'))",
        "import sys; sys.exit(3)",
        "import sys; sys.exit('a message')",
        "raise SystemExit",
        "import sys; sys.exit(257)",
        "def fail():\n    raise ValueError('wrong')\nprint('before')\nfail()",
        "import runpy; runpy.run_module('no_such_module')",
        "this is no Python",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "import os; print('not flushed'); os._exit(4)",
        "import atexit; atexit.register(print, 'at the end'); print('first')",
        (
            "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('from "
            "a "
            "thread'))).start()"
        ),
        "import sys; sys.stdout.close()",
    ],
)
def test_forked_code_ends_alike(code):
    forked, own = both_ways([sys.executable, "-c", code, "a", "--b"], input="given ä")
    assert outcome(forked) == outcome(own)


def test_forked_commands_run_alike(tmp_path):
    (tmp_path / "neighbor.py").write_text("NAME = __name__\n")
    text = (
        "import sys, neighbor\nprint(__name__, __file__, neighbor.NAME, sys.argv, "
        "sys.path[0])\n1 / 0\n"
    )
    (tmp_path / "program.py").write_text(text)
    for command in (
        [sys.executable, tmp_path / "program.py", "1"],
        [sys.executable, "program.py", "1"],
        [sys.executable, "-m", "program", "1"],
    ):
        forked, own = both_ways(command, cwd=tmp_path)
        assert outcome(forked)[:2] == outcome(own)[:2]
        assert forked.returncode == 1
        assert forked.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert run_program([sys.executable, "program.py"], cwd=tmp_path).stderr.count("File ") == 1
    forked, own = both_ways(
        [SCRIPTS / "tfk-transformer", "translate", "no_such_file", "seven"], cwd=tmp_path
    )
    assert outcome(forked) == outcome(own)
    assert forked.returncode == 1
    assert "no_such_file" in forked.stderr


def test_output_joined_or_as_bytes():
    code = (
        "import sys; print('out', flush=True); print('err', file=sys.stderr); "
        "print(sys.stdin.buffer.read())"
    )
    done = run_program(
        [sys.executable, "-c", code], input=b"\xff", stderr=subprocess.STDOUT, text=False
    )
    assert outcome(done) == (0, b"out\nerr\nb'\\xff'\n", None)


def test_fork_gets_folder_and_variables(tmp_path, monkeypatch):
    code = (
        "import os; print(os.getcwd(), os.environ.get('COLUMNS'), "
        "os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    )
    command = [sys.executable, "-c", code]
    given = {**os.environ, "COLUMNS": "71"}
    assert run_program(command, cwd=tmp_path, env=given).stdout == f"{tmp_path} 71 3\n"
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run_program(command).stdout == f"{tmp_path} None 3\n"


def test_timeout_kills_the_program(tmp_path):
    code = (
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); "
        "print(1, flush=True); time.sleep(60)"
    )
    start = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as error:
        run_program([sys.executable, "-c", code], timeout=2)
    assert time.monotonic() - start < 30
    assert error.value.stdout == "1\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_forks_differ_in_randomness():
    code = "import random, numpy; print(random.random(), numpy.random.rand())"
    numbers = [run_program([sys.executable, "-c", code]).stdout for _ in range(2)]
    assert numbers[0] != numbers[1]


def test_import_variables_prevent_fork(monkeypatch):
    command = [sys.executable, "-c", PRINT_PARENT]
    ours = f"{os.getpid()}\n"
    assert run_program(command, env={**os.environ, "KERAS_BACKEND": "jax"}).stdout == ours
    without = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    assert run_program(command, env=without).stdout == ours
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert run_program(command).stdout == ours


def test_leftover_variables_allow_fork(monkeypatch):
    name = "TF_VARIABLE_OF_THIS_TEST"
    monkeypatch.setenv(name, "true")
    assert late_variables(os.environ) is None  # this test set it
    monkeypatch.setattr(forked_programs, "left_behind", dict(os.environ))
    left = late_variables(os.environ)
    assert left is not None
    assert name not in left
    assert late_variables({**os.environ, name: "false"}) is None


def test_other_commands_are_not_forked():
    for command in (
        ["true"],
        [sys.executable],
        [sys.executable, "-W", "error", "-c", ""],
        ["sh", "-c", "exit 3"],
    ):
        assert forked_command(command) is None
    assert run_program(["sh", "-c", "echo $0; exit 3"]).returncode == 3
    command = str(SCRIPTS / "tfk-transformer")
    assert forked_command([command, "--help"]) == ["", command, "--help"]
    assert "Usage: tfk-transformer" in run_program(["tfk-transformer", "--help"]).stdout


def test_server_ends_with_its_starter(tmp_path):
    code = (
        "import os, pathlib, sys, run_wide\n"
        "run_wide.folder, run_wide.process = pathlib.Path(sys.argv[1]), os.getpid()\n"
        "from forked_programs import run_program\n"
        f"print(run_program([sys.executable, '-c', {PRINT_PARENT!r}]).stdout)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(run_wide.__file__)}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, env=environment
    )
    server = int(re.fullmatch(r"(\d+)\n\n", done.stdout)[1])
    for _ in range(100):
        try:
            os.kill(server, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(server, signal.SIGKILL)
    raise AssertionError(f"process {server} goes on")
