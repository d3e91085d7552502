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
        if path.is_dir():
            os.replace(path, holder / "old")
        os.replace(new, path)
    finally:
        shutil.rmtree(holder, ignore_errors=True)
