"""Files that a run of the tests makes once for all of its processes, in a folder of the run.

    from run_wide import made_once

    path = made_once("bundle/numbers", lambda path: train(recipe, path))

The first process that asks calls the function, under a lock, with a path to write to. What it wrote
is moved to its place when it is whole, so that a maker that fails leaves nothing there. All others
get the same path. They only read: a test that changes such files copies them first, and the end of
a run checks that nothing was changed.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from processor_seconds import shared

# The environment of the run, before a test or the library changes it.
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3"} | os.environ
# Set by conftest.py: the folder, and the process that started the run and ends with it.
folder: Path | None = None
process: int | None = None


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return the file or folder of the run that `make(path)` writes, unless that has been done.

    Args:
        name: unique within the run; may be a relative path. Its last part is also the name of what
            `make` is asked to write.
        make: called with a path that does not exist, in a folder that does.
    """
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            unfinished = folder / "unfinished" / name
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            if unfinished.is_dir():
                shutil.rmtree(unfinished)  # of a maker that failed
            with shared():
                make(unfinished)
            path.with_name(f"{path.name}.content").write_text(json.dumps(content(unfinished)))
            unfinished.rename(path)
    return path


def content(path: Path) -> dict[str, list[int]]:
    """Return the size and the time of change of each file, by name."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    states = {str(file.relative_to(path)): os.stat(file) for file in files}
    return {name: [state.st_size, state.st_mtime_ns] for name, state in states.items()}


def changed() -> list[str]:
    """Return the names of what was changed after it was made."""
    records = sorted(folder.rglob("*.content")) if folder.exists() else []
    made = [(file.with_suffix(""), json.loads(file.read_text())) for file in records]
    return [
        str(path.relative_to(folder))
        for path, then in made
        if path.exists() and content(path) != then
    ]
