"""Programs in forks behave like programs in processes of their own."""

import os
import subprocess
import sys
import time

import processor_seconds
import pytest
import run_wide
from forked_programs import run_program
from shell_commands import ShellCommands

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks programs on Linux only")
IMPORTED = "import sys; print('tensorflow' in sys.modules)"


@pytest.mark.parametrize(
    "code",
    [
        "import sys; print(sys.argv, sys.path[0], sys.stdin.read()); print(1, file=sys.stderr)",
        "print(__name__, sorted(name for name in globals() if name[0] != '_'))",
        "import sys; sys.exit(3)",
        "import sys; sys.exit('a message')",
        "def fail():\n    raise ValueError('wrong')\nprint('before')\nfail()",
        "this is no Python",
        "import atexit; atexit.register(print, 'at the end'); print('first')",
        "import os; print(os.getcwd(), os.environ['COLUMNS'], os.environ['TF_CPP_MIN_LOG_LEVEL'])",
    ],
)
def test_forked_code_ends_alike(code, tmp_path):
    command = [sys.executable, "-c", code, "a", "--b"]
    options = {"input": "given ä", "cwd": tmp_path, "env": {**os.environ, "COLUMNS": "71"}}
    forked = run_program(command, **options)
    own = subprocess.run(command, capture_output=True, text=True, **options)
    assert vars(forked) | {"args": None} == vars(own) | {"args": None}


@pytest.mark.parametrize("arguments", [["program.py", "1"], ["-m", "program", "1"]])
def test_files_and_modules_run_alike(tmp_path, arguments):
    (tmp_path / "neighbor.py").touch()
    code = "import sys, neighbor; print(__name__, __file__, sys.argv, sys.path[0])"
    (tmp_path / "program.py").write_text(code)
    command = [sys.executable, *arguments]
    own = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run_program(command, cwd=tmp_path).stdout == own.stdout != ""


def test_timeout_kills_the_program(tmp_path):
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    with pytest.raises(subprocess.TimeoutExpired):
        run_program([sys.executable, "-c", code], cwd=tmp_path, timeout=5)
    assert_ends(int((tmp_path / "pid").read_text()))


def assert_ends(process):
    """Wait until a process has ended."""
    for _ in range(600):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"process {process} goes on")


@pytest.mark.parametrize(("name", "forked"), [("COLUMNS", True), ("KERAS_BACKEND", False)])
def test_import_variables_prevent_fork(tmp_path, name, forked):
    env = {**os.environ, name: "7"}
    assert run_program([sys.executable, "-c", IMPORTED], env=env).stdout == f"{forked}\n"
    commands = ShellCommands(tmp_path / "bin")
    (tmp_path / "file.py").write_text(IMPORTED)
    script = f"python file.py | tr a-z A-Z; {name}=7 python file.py"
    done = commands.run(["bash", "-c", script], cwd=tmp_path)
    assert (done.stdout, done.stderr) == (f"TRUE\n{forked}\n", "")


def test_shell_gets_exit_codes(tmp_path):
    commands = ShellCommands(tmp_path / "bin")
    script = "tfk-transformer inspect nothing || python -c 'exit(3)'"
    done = commands.run(["bash", "-c", script], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "error: " in done.stderr


def test_fork_seconds_are_counted():
    before = processor_seconds.used()
    run_program([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"])
    assert processor_seconds.used() - before > 0.4


def test_server_ends_with_its_starter(tmp_path):
    code = (
        "import os, pathlib, sys, run_wide\n"
        "run_wide.folder, run_wide.process = pathlib.Path(sys.argv[1]), os.getpid()\n"
        "import forked_programs\n"
        "program = 'import os; print(open(f\"/proc/{os.getppid()}/stat\").read().split()[3])'\n"
        "print(forked_programs.run_program([sys.executable, '-c', program]).stdout)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.path.dirname(run_wide.__file__)}
    command = [sys.executable, "-c", code, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert_ends(int(done.stdout))
