"""Compressed files, by the ends of their names: read as streams, and written as sequences of
complete parts.

The parts are gzip members or Zstandard frames. A file that ends after any of them is valid.
"""

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

GZIP, ZSTANDARD, PLAIN = ".gz", ".zst", ""


def compression(path: Path) -> str:
    """Return how a file is compressed, by its name: ".gz", ".zst" or ""."""
    return path.suffix.lower() if path.suffix.lower() in (GZIP, ZSTANDARD) else PLAIN


def text_suffix(path: Path) -> str:
    """Return the end of a file's name before that of its compression: ".tsv" for `pairs.tsv.gz`."""
    return (path.with_suffix("") if compression(path) else path).suffix.lower()


@contextlib.contextmanager
def open_decompressed(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read its bytes, decompressed.

    Raises:
        ValueError: if the file is not compressed as its name says, or its end is missing.
        ImportError: if the package for Zstandard is not installed.
    """
    kind = compression(path)
    errors: tuple[type[Exception], ...] = ()
    if kind == GZIP:
        errors = (gzip.BadGzipFile, EOFError, zlib.error)
        file = cast(BinaryIO, gzip.open(path, "rb"))
    elif kind == ZSTANDARD:
        errors = (_zstandard().ZstdError, EOFError)
        file = _zstandard().open(path, "rb")
    else:
        file = path.open("rb")
    with file:
        try:
            yield file
        except errors as error:
            raise ValueError(
                f"{path}: expected a complete {kind} file, got a corrupt or cut one ({error}); "
                "make it again."
            ) from error


def compressed(data: bytes, kind: str) -> bytes:
    """Return a complete part of a compressed file, or the data itself if `kind` is "". Equal data
    gives equal parts.
    """
    if kind == GZIP:
        return gzip.compress(data, compresslevel=6, mtime=0)
    return _zstandard().compress(data) if kind == ZSTANDARD else data


def check_compression(*paths: Path | None) -> None:
    """Refuse a file whose compression needs a package that is not installed.

    Raises:
        ImportError: if the package for Zstandard is not installed.
    """
    if any(path is not None and compression(path) == ZSTANDARD for path in paths):
        _zstandard()


def count_lines(path: Path) -> int:
    """Return the number of lines in a file, decompressed. A last line without a line end counts
    too.
    """
    count, last = 0, b"\n"
    with open_decompressed(path) as file:
        while block := file.read(2**20):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def _zstandard() -> Any:
    """Return the module of Zstandard: that of Python 3.14, or the same module from the package
    `backports.zstd`.
    """
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from backports import zstd
    return zstd
