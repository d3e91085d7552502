"""Read and write compressed files, whose suffixes name the compression.

They are written as sequences of complete parts, gzip members or Zstandard frames. A file that ends
after any of the parts is valid.
"""

import contextlib
import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

GZIP = ".gz"
ZSTANDARD = ".zst"
MAX_LINE_BYTES = 2**24  # more than any text has; a few kB of compressed data can be an endless line


def compression(path: Path) -> str:
    """Return ".gz", ".zst" or ""."""
    suffix = path.suffix.lower()
    return suffix if suffix in (GZIP, ZSTANDARD) else ""


def text_suffix(path: Path) -> str:
    """Return the suffix before any compression suffix: ".tsv" for `pairs.tsv.gz`."""
    return (path.with_suffix("") if compression(path) else path).suffix.lower()


@contextlib.contextmanager
def open_decompressed(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read its decompressed bytes; a corrupt file is a `ValueError`."""
    suffix = compression(path)
    errors: tuple[type[Exception], ...] = ()
    if suffix == GZIP:
        errors = (gzip.BadGzipFile, EOFError, zlib.error)
        file = cast(BinaryIO, gzip.open(path, "rb"))
    elif suffix == ZSTANDARD:
        errors = (_zstandard().ZstdError, EOFError)
        file = _zstandard().open(path, "rb")
    else:
        file = path.open("rb")
    with file:
        try:
            yield file
        except errors as error:
            raise ValueError(
                f"{path}: expected a complete {suffix} file, got a corrupt or truncated one "
                f"({error}); make it again."
            ) from error


def compress(data: bytes, suffix: str) -> bytes:
    """Return data as a part of a file with this compression. Equal data gives equal parts."""
    if suffix == GZIP:
        return gzip.compress(data, compresslevel=6, mtime=0)
    return _zstandard().compress(data) if suffix == ZSTANDARD else data


def check_compression(*paths: Path | None) -> None:
    """Raise `ImportError` for a file whose compression needs a package that is not installed."""
    if any(path is not None and compression(path) == ZSTANDARD for path in paths):
        _zstandard()


def read_lines(file: BinaryIO | io.BufferedIOBase, name: str) -> Iterator[bytes]:
    """Yield the lines of a file with this name; a line that is too long is a `ValueError`."""
    for number in itertools.count(1):
        line = file.readline(MAX_LINE_BYTES + 1)
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(
                f"{name}:{number}: expected a line of at most {MAX_LINE_BYTES:,} bytes, got a "
                "longer one; check that it is the right file, with a text in each line."
            )
        if not line:
            return
        yield line


def count_lines(path: Path) -> int:
    """Return the number of lines in a decompressed file; the last one may lack its line end."""
    with open_decompressed(path) as file:
        return sum(1 for _ in read_lines(file, str(path)))


def _zstandard() -> Any:
    """Return the Zstandard module of Python 3.14, or its backport `backports.zstd`."""
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from backports import zstd
    return zstd
