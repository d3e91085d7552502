"""A process with one engine of this package, as `engines.worker` is for translation.

python -m trainers.worker MODULE PATH THREADS [OPTION …]
"""

import contextlib
import ctypes
import os
import sys
import time

from engines.worker import peak_megabytes, serve

# Several engines share an accelerator: none may take all its memory at once.
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}
PRODUCTS, TRIES = 4, 2


def main() -> None:
    """Serve an engine on as many processors as it has threads, since some libraries have no option
    for threads.
    """
    # Libraries' notes; what goes wrong is in the answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[3])])
    serve("trainers", _run)


def _run(engine, first: bool, product_size: int | None) -> dict:
    """Train on all batches once, and measure products; the very first time through, an engine
    compiles.
    """
    if not first:
        engine.train(1)  # buffers are made again before the clock starts
    started = time.perf_counter()
    loss = engine.train(None)
    seconds = time.perf_counter() - started
    rate = product_rate(engine, product_size or engine.product_size)
    peaks = {"peak_megabytes": peak_megabytes(), "device_megabytes": engine.device_megabytes()}
    _give_memory_back()
    return {
        "seconds": seconds,
        "loss": loss,
        "rate": rate,
        "parameters": engine.parameters,
        **peaks,
    }


def product_rate(engine, size: int) -> float:
    """Return the FLOP/s of the engine's own product of two matrices (size, size), the best of a few
    tries.
    """
    engine.multiply(size, 1)
    return 2 * size**3 * PRODUCTS / min(_seconds(engine, size) for _ in range(TRIES))


def _seconds(engine, size: int) -> float:
    started = time.perf_counter()
    engine.multiply(size, PRODUCTS)
    return time.perf_counter() - started


def _give_memory_back() -> None:
    """Hand freed memory to the system: all engines wait side by side, and together they would not
    fit.
    """
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL("libc.so.6").malloc_trim(0)


if __name__ == "__main__":
    main()
