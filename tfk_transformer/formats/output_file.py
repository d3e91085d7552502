"""An output file that is either complete or missing, and that a later run can continue."""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from tfk_transformer.atomic_write import open_locked
from tfk_transformer.formats.compression import compress, compression
from tfk_transformer.formats.lines import Line
from tfk_transformer.formats.unfinished import UnfinishedRun


def neighbor(path: Path, suffix: str) -> Path:
    """Return the path with a suffix appended to the file's name."""
    return path.with_name(f"{path.name}{suffix}")


def unfinished_run(path: Path) -> UnfinishedRun | None:
    """Return the record of an unfinished run that wrote a file, or None.

    Raises:
        ValueError: if the record of the run cannot be read.
    """
    record = neighbor(path, ".partial.json")
    if not record.exists():
        return None
    done = UnfinishedRun.load(record)
    is_complete = path.is_file() and path.stat().st_size == done.size
    if is_complete and not neighbor(path, ".partial").exists():
        record.unlink()  # the run ended after it had renamed its output
        return None
    return done


class OutputFile:
    """A file that is written in parts to FILE.partial. The end of the block renames it to FILE.

    Each part is complete, also if the file is compressed. FILE.partial.json records the progress
    after each committed part. FILE.errors.jsonl names the lines that could not be processed. If the
    block ends with an error, FILE stays unchanged and FILE.partial contains all parts. The parts of
    an earlier run are replaced when the first part is written.

    Args:
        path: the file to write.
        run: everything that the results depend on, by name; None if nothing is committed.
        done: the progress of the earlier run that this run continues.
    """

    def __init__(
        self, path: Path, run: dict[str, Any] | None = None, done: UnfinishedRun | None = None
    ) -> None:
        self.path = path
        self.partial = neighbor(path, ".partial")
        self.report = neighbor(path, ".errors.jsonl")
        self.record = neighbor(path, ".partial.json")
        self.done = done or UnfinishedRun(run or {})
        self.committed = self.done.lines  # lines of the input that --resume would skip
        self._next = self.done  # the progress after the part that is being written
        self._recorded = run is not None
        self._begun = done is not None

    def __enter__(self) -> "OutputFile":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._begun:
            _check_size(self.partial, self.done.size)
            _check_size(self.report, self.done.report_size)
        try:
            self._file, _ = open_locked(self.partial)  # fails in a read-only folder, before work
        except BlockingIOError:
            raise ValueError(
                f"{self.partial}: expected a file that no other process writes, got one that "
                "another process is writing; wait for it."
            ) from None
        if self._begun:
            self._truncate()
        return self

    def write(self, lines: Iterable[str], bad: Iterable[Line] = ()) -> None:
        """Write lines to the file, and report the lines that could not be processed.

        Both are in the files when this method returns.
        """
        self._begin()
        texts = [f"{line}\n" for line in lines]
        reports = [
            {"file": line.bad_file, "line": line.number, "reason": line.reason} for line in bad
        ]
        data = compress("".join(texts).encode(), compression(self.path)) if texts else b""
        self._next = self.done._replace(
            size=self.done.size + len(data), written=self.done.written + len(texts)
        )
        self._file.write(data)
        self._file.flush()
        self.done = self._next
        if reports:
            rows = [json.dumps(report, ensure_ascii=False) + "\n" for report in reports]
            data = "".join(rows).encode(errors="replace")  # a file's name may not be UTF-8
            with self.report.open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self.done = self.done._replace(
                report_size=self.done.report_size + len(data), bad=self.done.bad + len(reports)
            )

    def commit(self, lines: int, sha256: str, total: int) -> None:
        """Record that everything that was written so far is complete.

        Args:
            lines: lines of the input that were read.
            sha256: the hash of these lines.
            total: texts in these lines.
        """
        self.done = self.done._replace(lines=lines, sha256=sha256, total=total)
        if self._recorded:
            os.fsync(self._file.fileno())
            self.done.save(self.record)
            self.committed = lines

    def _begin(self) -> None:
        """Remove the files of an earlier run, at the first call.

        The record is removed first: without it, the other files are not used.
        """
        if not self._begun:
            self.record.unlink(missing_ok=True)
            self.report.unlink(missing_ok=True)
            self._file.truncate(0)
            self._begun = True

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error_type is None:
            self._finish()
            return
        with contextlib.suppress(OSError):
            self._file.close()  # fails where a part did not fit on the disk
        if self._begun:
            # The signal came after the part was written.
            if self.partial.stat().st_size == self._next.size:
                self.done = self.done._replace(size=self._next.size, written=self._next.written)
            self._truncate()
        if not self.committed and not self.partial.stat().st_size:
            self.partial.unlink()

    def _truncate(self) -> None:
        """Remove an incomplete last part, which a full disk or a killed process leaves."""
        os.truncate(self.partial, self.done.size)
        if self.done.report_size:
            os.truncate(self.report, self.done.report_size)
        else:
            self.report.unlink(missing_ok=True)

    def _finish(self) -> None:
        self._begin()
        if not self.done.size:
            # A compressed file has at least one part.
            self._file.write(compress(b"", compression(self.path)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.partial, self.path)
        self.record.unlink(missing_ok=True)
        neighbor(self.record, ".new").unlink(missing_ok=True)  # of a run that was killed


def _check_size(path: Path, size: int) -> None:
    """Refuse a file that is shorter than the size that an earlier run committed."""
    actual = path.stat().st_size if path.exists() else 0
    if actual < size:
        raise ValueError(
            f"{path}: expected at least {size:,} bytes of the unfinished run, got {actual:,}; "
            "--force starts over."
        )
