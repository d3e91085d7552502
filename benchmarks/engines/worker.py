"""A process with one engine. Requests and answers are lines of JSON.

python -m engines.worker MODULE PATH THREADS [OPTION …]

Between requests it blocks while it reads, so that its threads leave the cores to the other engines.
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    """Serve an engine of this package."""
    serve("engines", _run)


def serve(package: str, run: Callable[..., dict]) -> None:
    """Load the engine and serve until the input ends.

    Args:
        package: where MODULE is found.
        run: takes the engine, and a request's items by name; returns the items of the answer.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not stand between the answers
    module, path, threads, *options = sys.argv[1:]
    try:
        started = time.perf_counter()
        engine = importlib.import_module(f"{package}.{module}").Engine(path, int(threads), *options)
        _say(answers, load_seconds=time.perf_counter() - started, version=engine.version)
        for line in sys.stdin:
            _say(answers, **run(engine, **json.loads(line)))
    except Exception as error:  # whatever it is, the parent is to say it
        _say(answers, error=f"{type(error).__name__}: {error}")


def _run(engine, rows: list, search: dict, ids: bool) -> dict:
    from engines.batches import Search  # only now: a missing library is said where the engine loads

    prepared = engine.prepare(rows)
    started = time.perf_counter()
    found = engine.translate(prepared, Search(**search))
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "peak_megabytes": peak_megabytes(),
        "ids": engine.read(found) if ids else None,
    }


def peak_megabytes() -> float:
    """Return this process's greatest resident size; ru_maxrss would count the parent from before
    the exec, if it was larger.
    """
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _say(answers, **answer) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
