"""Files and folders that appear complete or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to, and move it to `path` when the block ends without an error.

    The temporary path is in a new folder beside `path`. If anything fails, the previous content of `path` stays unchanged. A folder
    that is replaced is first moved aside and deleted last.

    Args:
        path: the file or folder to write. The block must create a file or a folder at the yielded path.
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


class LineFile:
    """A file whose lines are written as they come to its neighbour FILE.partial, which becomes FILE when the block ends.

    If the block ends with an error, `path` stays unchanged and FILE.partial keeps all finished lines. A FILE.partial of an earlier
    run is replaced when the first line is written.

    Args:
        path: the file to write.

    Raises:
        ValueError: if `path` is a folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise ValueError(f"output: expected a file, got the folder {path}; name a file in it.")
        self.partial = self.path.with_name(f"{self.path.name}.partial")
        self.count = 0  # of finished lines
        self._size = 0  # of the finished lines, in bytes

    def __enter__(self) -> "LineFile":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.partial.open("ab")  # a folder that cannot be written fails here, before any work
        return self

    def write(self, line: str) -> None:
        """Write a line, which is in the file when this returns."""
        if not self.count:
            self._file.truncate(0)
        data = f"{line}\n".encode()
        self._file.write(data)
        self._file.flush()
        self._size += len(data)
        self.count += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._file.close()  # fails where a line did not fit on the disk
        if kind is None or self.count:
            os.truncate(self.partial, self._size)  # half a line, or the lines of an earlier run
        if kind is None:
            os.replace(self.partial, self.path)
        elif not self.partial.stat().st_size:
            self.partial.unlink()


def _put(new: Path, path: Path, aside: Path) -> None:
    """Move `new` to `path`. A folder at `path` is moved to `aside` first, and back if anything fails."""
    try:
        if path.is_dir():
            os.replace(path, aside)
        os.replace(new, path)
    except BaseException:
        if aside.exists() and not path.exists():
            os.replace(aside, path)
        raise
