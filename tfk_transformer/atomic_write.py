"""Files and folders that appear complete or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to, and move it to `path` when the block ends without an
    error.

    The temporary path is in a new folder beside `path`. If anything fails, the previous content of
    `path` stays unchanged. A folder that is replaced is first moved aside and deleted last.

    Args:
        path: the file or folder to write. The block must create a file or a folder at the yielded
            path.
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


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a small file by way of its neighbour FILE.new, so that FILE is either the old or the
    new one, also after a power cut.

    Unlike `written_whole`, a process that is killed here leaves nothing that the next call does not
    replace.

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


def _put(new: Path, path: Path, aside: Path) -> None:
    """Move `new` to `path`. A folder at `path` is moved to `aside` first, and back if anything
    fails.
    """
    try:
        if path.is_dir():
            os.replace(path, aside)
        os.replace(new, path)
    except BaseException:
        if aside.exists() and not path.exists():
            os.replace(aside, path)
        raise
