"""Open mutated files of every kind, each in a fork with limits on memory and time.

A file must open, or be refused with a ValueError of one line. Everything else is a finding: another
exception, a signal, or too much memory or time. The kind of file and the number of a mutation
determine the mutation, so `--only NUMBER` repeats a finding. Limits and processes that may
crash make it longer than 60 lines.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz_kinds import KINDS, import_modules, make_folders

# Limits: bytes of address space, seconds of processor time, and elapsed seconds.
MEMORY, BUSY, HUNG = 12 * 2**30, 60, 600
MOST = 2**20  # KiB of memory, in addition to that of the modules
OPENED, FOUND, REFUSED = 0, 1, 3  # exit statuses


def attempt(name: str, number: int, valid: Path, copy: Path) -> int:
    """Mutate a file and open it; return the exit status, and print a finding."""
    kind = KINDS[name]
    shutil.copytree((valid / kind.file).parent, copy)
    file = copy / Path(kind.file).name
    file.write_bytes(kind.mutate(file.read_bytes(), random.Random(f"{name} {number}")))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (BUSY, BUSY))
    signal.alarm(HUNG)  # ends the process; on a busy machine, opening a model can take a minute
    try:
        kind.use(copy)
    except BaseException as error:  # also SystemExit: a finding
        text = str(error)
        if isinstance(error, ValueError) and text and "\n" not in text and len(text) < 3000:
            return REFUSED
        print(f"{name} {number}: {type(error).__name__}: {text[:300]!r}", flush=True)
        return FOUND
    return OPENED


def fork(function, *arguments) -> int:
    """Call a function in a fork that exits with the result; return the id of the process."""
    if (child := os.fork()) == 0:
        status = FOUND
        try:
            status = function(*arguments) or OPENED
        finally:
            os._exit(status)
    return child


def main() -> None:
    """Run all mutations and print the counts of each kind; the status is 1 after findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="number of mutations of each kind")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin none after this time")
    parser.add_argument("--kind", choices=KINDS, nargs="*", default=list(KINDS))
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of the mutations")
    parser.add_argument("--keep", type=Path, help="folder in which to keep the files of findings")
    options = parser.parse_args()
    jobs = [(n, i) for i in options.only or range(options.count) for n in options.kind]
    running: dict[int, tuple[str, int]] = {}
    counts: Counter[tuple[str, int]] = Counter()
    import_modules()  # once for all forks, none of which may start TensorFlow before it forks
    with tempfile.TemporaryDirectory() as temporary:
        valid = Path(temporary, "valid")
        _, status = os.waitpid(fork(make_folders, valid), 0)
        assert status == OPENED, "the valid files were not written"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        until = time.monotonic() + options.seconds
        while running or jobs:
            if jobs and time.monotonic() > until:
                jobs.clear()
            elif jobs and len(running) < (os.cpu_count() or 1):
                name, number = job = jobs.pop(0)
                copy = Path(temporary, f"{name}-{number}")
                running[fork(attempt, name, number, valid, copy)] = job
            else:
                child, status, usage = os.wait4(-1, 0)
                name, number = running.pop(child)
                if (used := usage.ru_maxrss - before) > MOST:
                    print(f"{name} {number}: {used // 1024:,} MiB of memory", flush=True)
                    status = FOUND << 8
                copy = Path(temporary, f"{name}-{number}")
                if os.WIFSIGNALED(status):
                    print(f"{name} {number}: {signal.strsignal(os.WTERMSIG(status))}", flush=True)
                outcome = os.waitstatus_to_exitcode(status)
                outcome = outcome if outcome in (OPENED, REFUSED) else FOUND
                counts[name, outcome] += 1
                if outcome == FOUND and options.keep:
                    shutil.copytree(copy, options.keep / copy.name, dirs_exist_ok=True)
                shutil.rmtree(copy)
    for name in options.kind:
        print(f"{name}: {counts[name, OPENED]} opened, {counts[name, REFUSED]} refused")
    findings = sum(counts[name, FOUND] for name in options.kind)
    print(f"{findings} findings")
    raise SystemExit(findings > 0)


if __name__ == "__main__":
    main()
