"""Run engines in turn, each in its own process, and report medians and ratios.

    specs = [EngineSpec("ONNX", "engines.onnx_file", ("generate.onnx",)), …]
    with started(specs) as engines:
        answers = take_turns({e.spec.name: partial(e.ask, rows=rows) for e in engines}, rounds=5)
        seconds = seconds_of(answers)
    ratio_to_best(seconds, "ONNX", ["CTranslate2"])

In each round every engine has its turn, so that a change of the machine's speed changes all
figures alike. A figure is the median of the rounds, and a ratio the median of the rounds' ratios.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

WORKER = Path(__file__).with_name("worker.py")
# The instructions that decide the speed of products, as /proc/cpuinfo names them.
FLAGS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_tile")
# The flags that programs find under `without.py`, by the environment variable HIDE.
LEFT = {"vnni": ("avx2", "avx512f"), "avx512": ("avx2",)}


class EngineSpec(NamedTuple):
    """An engine to start."""

    name: str  # in the tables
    module: str  # with a class `Engine`, see `worker`
    arguments: tuple = ()  # of the class, as JSON has them
    threads: int = 1
    python: str = sys.executable


class Answer(NamedTuple):
    """What an engine did with a request."""

    seconds: float
    processor_seconds: float  # of all threads; of a command, also of its processes
    peak_megabytes: float  # of its process so far
    result: Any = None


class RunningEngine:
    """An engine, loaded in its own process.

    Raises:
        ValueError: with the engine's message, if it does not load.
    """

    def __init__(self, spec: EngineSpec):
        self.spec = spec
        command = [spec.python, WORKER, spec.module, spec.threads, json.dumps(spec.arguments)]
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        loaded = self._read()
        self.version: str = loaded["version"]
        self.load_seconds: float = loaded["load_seconds"]
        self.peak_megabytes = 0.0

    def ask(self, **request: Any) -> Answer:
        """Return the answer to a request.

        Raises:
            ValueError: with the engine's message, if it fails.
        """
        with contextlib.suppress(BrokenPipeError):  # `_read` reports why it ended
            print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = Answer(**self._read())
        self.peak_megabytes = answer.peak_megabytes
        return answer

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if line:
            answer = json.loads(line)
        else:
            answer = {"error": f"its process ended with status {self._process.wait()}"}
        if "error" in answer:
            self.close()
            raise ValueError(f"{self.spec.name}: {answer['error']}")
        return answer


@contextlib.contextmanager
def started(
    specs: Sequence[EngineSpec], leave_out: Callable[[str], None] | None = None
) -> Iterator[list[RunningEngine]]:
    """Yield the engines, and end their processes afterwards.

    Args:
        specs: the engines.
        leave_out: is called with the message of an engine that does not load; None: raise it.
    """
    with contextlib.ExitStack() as stack:
        engines = []
        for spec in specs:
            try:
                engines.append(RunningEngine(spec))
            except ValueError as error:
                if leave_out is None:
                    raise
                leave_out(str(error))
            else:
                stack.callback(engines[-1].close)
        yield engines


def run_command(command: Sequence[Any]) -> Answer:
    """Run a command, whose output is discarded, and return what it took.

    Raises:
        SystemExit: if it fails.
    """
    begun = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(map(str, command))} failed")
    seconds = time.perf_counter() - begun
    return Answer(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def take_turns(
    runs: Mapping[str, Callable[[], Answer]], rounds: int, warm_up: bool = False
) -> dict[str, list[Answer]]:
    """Return the answers of each run by name, one of each round.

    Args:
        runs: what to run in each round, by name.
        rounds: how often each has its turn.
        warm_up: whether a round goes before that is not counted.
    """
    answers: dict[str, list[Answer]] = {name: [] for name in runs}
    for number in range(-warm_up, rounds):
        for name, run in runs.items():
            answer = run()
            if number >= 0:
                answers[name].append(answer)
    return answers


def seconds_of(answers: Mapping[str, Sequence[Answer]], field: str = "seconds") -> dict:
    """Return the seconds, or another field, of each round by name."""
    return {name: [getattr(answer, field) for answer in given] for name, given in answers.items()}


def ratio_to_best(
    seconds: Mapping[str, Sequence[float]], name: str, peers: Sequence[str]
) -> float | None:
    """Return how many times as fast a run is as the peer with the lowest median.

    It is the median of the rounds' ratios, and None if none of the peers ran.
    """
    present = [peer for peer in peers if peer in seconds]
    if not present:
        return None
    best = min(present, key=lambda peer: statistics.median(seconds[peer]))
    return statistics.median(b / own for b, own in zip(seconds[best], seconds[name], strict=True))


def share_of_equal(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the share of equal items."""
    return sum(a == b for a, b in zip(found, expected, strict=True)) / len(expected)


def megabytes(path: Path) -> float:
    """Return the size of a file, or of all files below a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6


def processor() -> str:
    """Return the processor's name, the number of cores, and its flags of `FLAGS`."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    pairs = [(key.strip(), value.strip()) for key, _, value in (s.partition(":") for s in lines)]
    names = [value for key, value in pairs if key == "model name"]
    flags = {flag for key, value in pairs if key == "flags" for flag in value.split()}
    if not names:
        return "an unknown processor"
    own = ", ".join(flag for flag in FLAGS if flag in flags) or f"none of {', '.join(FLAGS)}"
    left = LEFT.get(os.environ.get("HIDE", ""))
    hidden = f", of which these programs found {' and '.join(left)} only" if left else ""
    return f"{len(names)} × {names[0]} with {own}{hidden}"


def arguments_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser of a benchmark's arguments, which prints the description as it is."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables here")
    return parser


def report(
    conditions: Sequence[str], tables: Sequence[list[list[str]]], markdown: Path | None = None
) -> None:
    """Print sentences and tables, the heading of a table first, and write them to a file."""
    console = Console(highlight=False, width=200)
    console.print("\n".join(conditions), markup=False)
    for heading, *rows in tables:
        table = Table(*heading)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    if markdown:
        parts = ["\n".join(f"- {line}" for line in conditions), *map(_markdown, tables)]
        markdown.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _markdown(table: list[list[str]]) -> str:
    heading, *rows = table
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
