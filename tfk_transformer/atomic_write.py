"""Atomic writes of files and folders."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to, and move it to `path` if the block ends without an error.

    The temporary path is in a new folder next to `path`. If anything fails, the previous content of
    `path` stays unchanged. An old folder at `path` is deleted after the move.

    Args:
        path: the file or folder to write. The block must create a file or a folder at the yielded
            path.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        new = folder / path.name
        yield new
        _replace(path, new, backup=folder / f"{path.name}.old")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a small file through FILE.new, so that a power cut leaves the old or the new file.

    If the process is killed, the only leftover is FILE.new, which the next call replaces.
    `atomic_write` would leave a temporary folder.

    Args:
        path: the file to write, in a folder that exists.
        text: its content.
    """
    path = Path(path)
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def _replace(path: Path, new: Path, backup: Path) -> None:
    """Move `new` to `path`. A folder at `path` is moved to `backup`, and back if anything fails."""
    try:
        if path.is_dir():
            os.replace(path, backup)
        os.replace(new, path)
    except BaseException:
        if backup.exists() and not path.exists():
            os.replace(backup, path)
        raise
