"""An output that appears complete or not at all, and that an interrupted run leaves so that the
next one can continue.
"""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from tfk_transformer.text_files.compression import compressed, compression
from tfk_transformer.text_files.lines import Line
from tfk_transformer.text_files.unfinished import Unfinished


def neighbour(path: Path, end: str) -> Path:
    """Return the path of a file beside another, whose name is longer."""
    return path.with_name(f"{path.name}{end}")


def unfinished_run(path: Path) -> Unfinished | None:
    """Return how far a run that wrote a file has come, or None if there is no such run.

    Raises:
        ValueError: if the record of the run cannot be read.
    """
    record = neighbour(path, ".partial.json")
    if not record.exists():
        return None
    done = Unfinished.load(record)
    if (
        path.is_file()
        and path.stat().st_size == done.size
        and not neighbour(path, ".partial").exists()
    ):
        record.unlink()  # the run ended after it had renamed its output
        return None
    return done


class OutputFile:
    """A file that is written in parts to its neighbour FILE.partial, which becomes FILE when the
    block ends.

    A part is complete on its own also where the file is compressed. After each part that is
    committed, FILE.partial.json tells how far the run has come. FILE.errors.jsonl names the lines
    that could not be processed. If the block ends with an error, FILE stays unchanged and
    FILE.partial keeps all parts. Those of an earlier run are replaced when the first part is
    written.

    Args:
        path: the file to write.
        run: what the results depend on, by name; None if nothing is to be committed.
        done: how far an earlier run has come that this one continues.
    """

    def __init__(
        self, path: Path, run: dict[str, Any] | None = None, done: Unfinished | None = None
    ) -> None:
        self.path, self.partial = path, neighbour(path, ".partial")
        self.report, self.record = (
            neighbour(path, ".errors.jsonl"),
            neighbour(path, ".partial.json"),
        )
        self.done = done or Unfinished(run or {})
        # Lines of the input with which --resume would not begin again.
        self.committed = self.done.lines
        self._next = self.done  # after the part that is being written
        self._recorded, self._begun = run is not None, done is not None

    def __enter__(self) -> "OutputFile":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._begun:
            _check_size(self.partial, self.done.size)
            _check_size(self.report, self.done.report_size)
        # A folder that cannot be written fails here, before any work.
        self._file = self.partial.open("ab")
        _lock(self._file, self.partial)
        if self._begun:
            self._cut()
        return self

    def write(self, lines: Iterable[str], bad: Iterable[Line] = ()) -> None:
        """Write lines, and the lines of the input that could not be processed, which are in the
        files when this returns.
        """
        self._begin()
        texts, reports = [f"{line}\n" for line in lines], [_report(line) for line in bad]
        data = compressed("".join(texts).encode(), compression(self.path)) if texts else b""
        self._next = self.done._replace(
            size=self.done.size + len(data), written=self.done.written + len(texts)
        )
        self._file.write(data)
        self._file.flush()
        self.done = self._next
        if reports:
            data = "".join(reports).encode(errors="replace")  # a file's name may be no UTF-8
            with self.report.open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self.done = self.done._replace(
                report_size=self.done.report_size + len(data), bad=self.done.bad + len(reports)
            )

    def commit(self, lines: int, sha256: str, total: int) -> None:
        """Note that everything that was written so far is complete.

        Args:
            lines: lines of the input that were read.
            sha256: their hash.
            total: of these, texts.
        """
        self.done = self.done._replace(lines=lines, sha256=sha256, total=total)
        if self._recorded:
            os.fsync(self._file.fileno())
            self.done.save(self.record)
            self.committed = lines

    def _begin(self) -> None:
        """Remove what an earlier run left, once. The record goes first: without it, nothing of the
        rest counts.
        """
        if not self._begun:
            self.record.unlink(missing_ok=True)
            self.report.unlink(missing_ok=True)
            self._file.truncate(0)
            self._begun = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._finish()
            return
        with contextlib.suppress(OSError):
            self._file.close()  # fails where a part did not fit on the disk
        if self._begun:
            # The signal came when the part was written.
            if self.partial.stat().st_size == self._next.size:
                self.done = self.done._replace(size=self._next.size, written=self._next.written)
            self._cut()
        if not self.committed and not self.partial.stat().st_size:
            self.partial.unlink()

    def _cut(self) -> None:
        """Cut off what comes after the last whole part, as a full disk or a killed process leaves
        it.
        """
        os.truncate(self.partial, self.done.size)
        if self.done.report_size:
            os.truncate(self.report, self.done.report_size)
        else:
            self.report.unlink(missing_ok=True)

    def _finish(self) -> None:
        self._begin()
        if not self.done.size:
            # A compressed file has one part at least.
            self._file.write(compressed(b"", compression(self.path)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.partial, self.path)
        self.record.unlink(missing_ok=True)
        neighbour(self.record, ".new").unlink(missing_ok=True)  # of a run that was killed


def _report(line: Line) -> str:
    return (
        json.dumps(
            {"file": line.place, "line": line.number, "reason": line.reason}, ensure_ascii=False
        )
        + "\n"
    )


def _check_size(path: Path, size: int) -> None:
    """Refuse a file that is shorter than what an earlier run committed."""
    found = path.stat().st_size if path.exists() else 0
    if found < size:
        raise ValueError(
            f"{path}: expected at least {size:,} bytes of the unfinished run, got {found:,}; "
            "--force starts anew."
        )


def _lock(file: BinaryIO, path: Path) -> None:
    """Refuse a file that another process is writing, where the system and the disk can tell."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ValueError(
            f"{path}: expected a file that nobody writes, got one that another process is "
            "writing; wait for it."
        ) from None
    except OSError:  # a disk without locks
        pass
