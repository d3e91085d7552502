"""The benchmark's side of `engines.worker`: start engines in processes, and send them requests."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from engines.batches import Search

HERE = Path(__file__).parents[1]  # where the package `engines` is found


class EngineSpec(NamedTuple):
    """An engine to run, and its name in the table."""

    name: str
    module: str  # of this package
    path: Path
    options: tuple[str, ...] = ()
    python: str = sys.executable
    greedy_only: bool = False
    model: str = ""  # whose files these are: the sentences are in the ids of its tokenizer

    def side_by_side(self, batches: int) -> "EngineSpec":
        """Return this engine with this number of batches in parallel, which is its last option."""
        return self._replace(
            name=f"{self.name}, {batches} at once", options=(*self.options, str(batches))
        )

    def megabytes(self) -> float:
        """Return the size of its files."""
        files = (
            [self.path]
            if self.path.is_file()
            else [path for path in self.path.rglob("*") if path.is_file()]
        )
        return sum(file.stat().st_size for file in files) / 1e6


class RunningEngine:
    """An engine, loaded in a process of its own.

    Args:
        spec: what to run.
        threads: it may use.

    Raises:
        ValueError: with its own words, if it does not load.
    """

    worker = "engines.worker"

    def __init__(self, spec: EngineSpec, threads: int):
        self.spec = spec
        command = [
            spec.python,
            "-m",
            self.worker,
            spec.module,
            spec.path.resolve(),
            threads,
            *spec.options,
        ]
        # The working folder is where `-m` looks first.
        self._process = subprocess.Popen(
            list(map(str, command)),
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.loaded = self._answer()
        self.peak_megabytes = 0.0

    def translate(self, rows: list[list[int]], search: Search, ids: bool = False) -> dict:
        """Return the `seconds` it took, and with `ids` the translations' ids."""
        return self.ask(rows=rows, search=search._asdict(), ids=ids)

    def ask(self, **request) -> dict:
        """Return the answer to a request that its worker knows."""
        with contextlib.suppress(BrokenPipeError):  # why it ended, the answer says
            print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._answer()
        self.peak_megabytes = answer["peak_megabytes"]
        return answer

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):  # it may have ended already
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        answer = (
            json.loads(line)
            if line
            else {"error": f"its process ended with status {self._process.wait()}"}
        )
        if "error" in answer:
            self.close()
            raise ValueError(f"{self.spec.name}: {answer['error']}")
        return answer
