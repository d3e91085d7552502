"""Programs in forks behave like programs in processes of their own."""

import contextlib
import os
import select
import subprocess
import sys

import processor_seconds
import pytest
import run_wide
from forked_programs import run_program
from shell_commands import ShellCommands

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks programs on Linux only")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "import sys; print(sys.argv, sys.path[0], sys.stdin.read()); sys.exit(3)", "--b"],
        ["-c", "import sys; sys.exit('a message')"],
        ["-c", "def fail():\n    raise ValueError('wrong')\nprint('before')\nfail()"],
        ["-c", "import atexit; atexit.register(print, 'at the end'); print(__name__)"],
        ["-c", "import os; print(os.getcwd(), os.environ['COLUMNS'], os.environ.get('LINES'))"],
        ["program.py", "1"],
        ["-m", "program", "1"],
    ],
)
def test_forks_end_like_processes(tmp_path, arguments):
    (tmp_path / "neighbor.py").touch()
    code = "import sys, neighbor; print(__name__, __file__, sys.argv, sys.path[0])"
    (tmp_path / "program.py").write_text(code)
    command, env = [sys.executable, *arguments], {**os.environ, "COLUMNS": "71"}
    options = {"input": "given ä", "text": True, "cwd": tmp_path, "env": env}
    forked, own = (
        run_program(command, **options),
        subprocess.run(command, capture_output=True, **options),
    )
    assert vars(forked) | {"args": command} == vars(own)


def test_timeout_kills_the_program(tmp_path):
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    with pytest.raises(subprocess.TimeoutExpired):
        run_program([sys.executable, "-c", code], cwd=tmp_path, timeout=5)
    wait_for_end(int((tmp_path / "pid").read_text()))


def wait_for_end(process):
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(process)], [], [])


@pytest.mark.parametrize(("name", "forked"), [("COLUMNS", True), ("KERAS_BACKEND", False)])
def test_import_variables_prevent_fork(tmp_path, name, forked):
    commands = ShellCommands(tmp_path / "bin")
    code = "import sys; print('tensorflow' in sys.modules); sys.exit(3)"
    (tmp_path / "file.py").write_text(code)
    script = f"python file.py | tr a-z A-Z; {name}=7 python file.py"
    done = commands.run(["bash", "-c", script], cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"TRUE\n{forked}\n", "")


def test_fork_seconds_are_counted():
    before = processor_seconds.used()
    run_program([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"])
    assert processor_seconds.used() - before > 0.4


def test_server_ends_with_its_starter(tmp_path):
    code = (
        "import os, pathlib, run_wide\n"
        "run_wide.folder, run_wide.process = pathlib.Path.cwd(), os.getpid()\n"
        "import forked_programs, sys\n"
        "program = 'import os; print(open(f\"/proc/{os.getppid()}/stat\").read().split()[3])'\n"
        "print(forked_programs.run_program([sys.executable, '-c', program]).stdout)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.path.dirname(run_wide.__file__)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    wait_for_end(int(done.stdout))
