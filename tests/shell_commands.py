"""`python` and `tfk-transformer` for shells of tests, which run them in forks of the fork server.

commands = ShellCommands(tmp_path / "bin")
done = commands.run(["bash", "-c", "tfk-transformer doctor | head -1"], cwd=tmp_path)
"""

import os
import shlex
import subprocess
from pathlib import Path

import forked_programs
import run_wide


class ShellCommands:
    """A new folder with the two commands; `run` puts it before the others of PATH."""

    def __init__(self, folder: Path):
        folder.mkdir()
        self._folder = folder
        python = shlex.join(forked_programs.python())
        for name, program in (
            ("python", python),
            ("tfk-transformer", f"{python} -m tfk_transformer"),
        ):
            path = folder / name
            path.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
            path.chmod(0o755)

    def run(self, command: list[str], *, cwd: Path, env=(), timeout: float = 600):
        """Run a program that may call the commands, with its output captured.

        Args:
            command: the program and its arguments.
            cwd: the folder to run in.
            env: environment variables by name, besides those of the run.
            timeout: seconds after which the program is killed.

        Returns:
            The `subprocess.CompletedProcess`.
        """
        path = f"{self._folder}{os.pathsep}{run_wide.ENVIRONMENT['PATH']}"
        environment = {**run_wide.ENVIRONMENT, "MPLBACKEND": "agg", "PATH": path, **dict(env)}
        streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run(command, cwd=cwd, env=environment, timeout=timeout, **streams)
