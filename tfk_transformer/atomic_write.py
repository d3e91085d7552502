"""Folders and files that are whole or not there at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_whole(path) -> Iterator[Path]:
    """Give a temporary neighbour to write to, and put it in the place of `path` at the end.

    What stood at `path` stays untouched if anything fails; a folder that is replaced is moved aside first and deleted last.

    Args:
        path: of the file or folder wanted; the block makes a file or a folder of the yielded name.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    holder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        new = holder / path.name
        yield new
        _put(new, path, aside=holder / f"{path.name}.old")
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def _put(new: Path, path: Path, aside: Path) -> None:
    """Move `new` to `path`; a folder that stands there goes aside, and back if anything fails."""
    try:
        if path.is_dir():
            os.replace(path, aside)
        os.replace(new, path)
    except BaseException:
        if aside.exists() and not path.exists():
            os.replace(aside, path)
        raise
