"""Files that a run of the tests makes once for all of its processes, in a folder of the run.

    from run_wide import made_once

    path = made_once("bundle/numbers", lambda path: train(recipe, path))

The first process that asks makes them, and all others get the same path. They only read: a test
that changes such files copies them first.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

# The environment of the run, before a test or the library changes it. PyTorch's threads wait
# actively, which takes ten times as long.
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"} | os.environ
# Set by conftest.py: the folder, and the process that started the run and ends with it.
folder: Path | None = None
process: int | None = None
_made: dict[Path, list] = {}


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return the file or folder `name` of the run, which `make(path)` writes the first time.

    `make` gets a path with the same last part, at which nothing exists.
    """
    path, unfinished = folder / name, folder / "unfinished" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            shutil.rmtree(unfinished, ignore_errors=True)  # of a maker that failed
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            make(unfinished)
            unfinished.rename(path)
            _made[path] = content(path)
    return path


def content(path: Path) -> list[tuple[str, int, int]]:
    """Return the name, the size and the time of change of each file."""
    files = [file for file in sorted([path, *path.rglob("*")]) if file.is_file()]
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def changed() -> list[str]:
    """Return the names of what was changed after this process made it."""
    return [str(path.relative_to(folder)) for path, then in _made.items() if content(path) != then]
