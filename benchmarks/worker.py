"""The process of an engine. `harness.RunningEngine` starts it.

    python benchmarks/worker.py MODULE THREADS ARGUMENTS

MODULE has a class `Engine(threads, *arguments)` with

    version            name and version of the engine
    prepare(**request) converts a request to the engine's inputs; not timed
    run(inputs)        computes; timed
    result(outputs)    converts the outputs to JSON; not timed

Requests and answers are lines of JSON. This file needs only the standard library, so that an engine
can have an environment of its own. The process runs on THREADS processors, since some libraries
have no option for threads. Between requests it blocks, and leaves the processors to others.
"""

import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path

# Several engines share an accelerator: none may take all its memory at once.
ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}


def main() -> None:
    """Load an engine, and serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be between the answers
    module, threads, arguments = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    try:
        begun = time.perf_counter()
        engine = importlib.import_module(module).Engine(threads, *arguments)
        _send(answers, version=engine.version, load_seconds=time.perf_counter() - begun)
        for line in sys.stdin:
            _send(answers, **_answer(engine, json.loads(line)))
    except Exception as error:
        _send(answers, error=f"{type(error).__name__}: {error}")


def _answer(engine, request: dict) -> dict:
    inputs = engine.prepare(**request)
    used, begun = time.process_time(), time.perf_counter()
    outputs = engine.run(inputs)
    spent = {
        "seconds": time.perf_counter() - begun,
        "processor_seconds": time.process_time() - used,
    }
    return {**spent, "peak_megabytes": _peak_megabytes(), "result": engine.result(outputs)}


def _peak_megabytes() -> float:
    """Return the greatest resident size. ru_maxrss would include the parent's before the exec."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _send(answers, **answer) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
