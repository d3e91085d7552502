"""The commands that shells of tests find act like those of an installation."""

import sys

import processor_seconds
import pytest
from shell_commands import ShellCommands

IMPORTED = "import sys; print('tensorflow' in sys.modules)"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are forks on Linux only")


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    return ShellCommands(tmp_path_factory.mktemp("commands") / "bin")


def run(commands, folder, script, **options):
    return commands.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, **options)


def test_programs_act_as_in_a_shell(commands, tmp_path):
    code = "import os, sys; print(os.getcwd(), sys.argv, sys.stdin.read(), end='')"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "program.py").write_text("import sys; print(sys.argv, file=sys.stderr)")
    script = f'cd in; echo "é" | python -c "{code}" "a  b" > ../out.txt; '
    script += "python program.py 2>&1 | tr a-z A-Z"
    done = run(commands, tmp_path, script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['PROGRAM.PY']\n", "")
    assert (tmp_path / "out.txt").read_text() == f"{tmp_path / 'in'} ['-c', 'a  b'] é\n"


def test_failing_program_ends_script(commands, tmp_path):
    done = run(commands, tmp_path, "python -c 'import sys; sys.exit(3)'; echo unreached")
    assert (done.returncode, done.stdout) == (3, "")
    done = run(commands, tmp_path, "tfk-transformer inspect nothing; echo unreached")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: " in done.stderr


def test_import_variables_prevent_fork(commands, tmp_path):
    script = "".join(f'{name}=7 python -c "{IMPORTED}"\n' for name in ("PYTHONHASHSEED", "COLUMNS"))
    assert run(commands, tmp_path, script).stdout.split() == ["False", "True"]
    single = run(commands, tmp_path, f'python -c "{IMPORTED}"', env={"PYTHONHASHSEED": "2"})
    assert single.stdout == "False\n"


def test_fork_seconds_are_counted(commands, tmp_path):
    before = sum(processor_seconds.used())
    code = "import time\nwhile time.process_time() < 0.5: pass"
    run(commands, tmp_path, f"python -c '{code}'")
    assert sum(processor_seconds.used()) - before > 0.4
