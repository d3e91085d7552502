"""Programs in forks behave like programs in processes of their own."""

import os
import select
import subprocess
import sys

import processor_seconds
import pytest
from forked_programs import python, run_program

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
    own = subprocess.run(command, capture_output=True, **options)
    assert vars(run_program(command, **options)) | {"args": command} == vars(own)


def test_program_ends_with_its_client():
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen([*python(), "-c", code], stdout=subprocess.PIPE) as client:
        program = os.pidfd_open(int(client.stdout.readline()))
        client.kill()
    assert select.select([program], [], [], 60)[0] == [program]


@pytest.mark.parametrize(("name", "forked"), [("COLUMNS", True), ("KERAS_BACKEND", False)])
def test_import_variables_prevent_fork(name, forked):
    code = "import sys; print('tensorflow' in sys.modules)"
    done = run_program([sys.executable, "-c", code], env={**os.environ, name: "7"})
    assert done.stdout == f"{forked}\n"


def test_fork_seconds_are_counted():
    before = processor_seconds.used()
    run_program([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"])
    assert processor_seconds.used() - before > 0.4
