"""`python` and `tfk-transformer` for shells of tests, which run them in forks of the fork server.

commands = ShellCommands(tmp_path / "bin")
done = commands.run(["bash", "-c", "tfk-transformer doctor | head -1"], cwd=tmp_path)
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import processor_seconds
import run_wide
from forked_programs import LATE, LATE_PREFIXES, run_program

CLIENT = Path(__file__).with_name("fork_client.py")
# matplotlib reads it when it is imported, which it is not before a program asks for a plot.
OF_PLOTS = {"MPLBACKEND": "agg"}


class ShellCommands:
    """A new folder with the two commands; `run` puts it before the others of PATH."""

    def __init__(self, folder: Path):
        folder.mkdir()
        self._folder, self._seconds = folder, folder / "seconds.txt"
        self._seconds.touch()
        self._write("python", "")
        self._write("tfk-transformer", "-m tfk_transformer ")

    def _write(self, name: str, arguments: str) -> None:
        program = f'"{sys.executable}"'
        if sys.platform == "linux":
            program += f' -I -S "{CLIENT}" "{self._settings()}"'
        path = self._folder / name
        path.write_text(f'#!/bin/sh\nexec {program} {arguments}"$@"\n')
        path.chmod(0o755)

    def _settings(self) -> Path:
        run_program([sys.executable, "-c", ""], env=run_wide.ENVIRONMENT)  # starts the server
        path = self._folder / "settings.json"
        settings = {
            "address": str(run_wide.folder / "programs.socket"),
            "python": sys.executable,
            "served": dict(run_wide.ENVIRONMENT),
            "late": sorted(LATE | set(OF_PLOTS)),
            "late_prefixes": LATE_PREFIXES,
            "seconds": str(self._seconds),
        }
        path.write_text(json.dumps(settings), encoding="utf-8")
        return path

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
        environment = {**run_wide.ENVIRONMENT, **OF_PLOTS, "PATH": path, **dict(env)}
        streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        try:
            return subprocess.run(command, cwd=cwd, env=environment, timeout=timeout, **streams)
        finally:
            seconds = self._seconds.read_text(encoding="utf-8").split()
            processor_seconds.add_program(sum(map(float, seconds)))
            self._seconds.write_text("")
