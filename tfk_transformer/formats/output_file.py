"""An output file that is either complete or missing, and that a later run can continue."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tfk_transformer.atomic_write import open_locked, replace_file, replace_text
from tfk_transformer.config.small_files import one_line_error, read_json_object
from tfk_transformer.config.words import shorten
from tfk_transformer.formats.compression import compress, compression
from tfk_transformer.formats.lines import Line


class UnfinishedRun(NamedTuple):
    """The progress of a run, a small file next to the output. What it counts is on the disk."""

    run: dict[str, Any]  # everything that the results depend on, by name
    lines: int = 0  # lines of the input that were read
    sha256: str = ""  # the hash of these lines
    total: int = 0  # texts in these lines: without the header
    bad: int = 0  # texts in these lines that could not be processed
    written: int = 0  # lines of the output
    size: int = 0  # bytes of the output
    report_size: int = 0  # bytes of the report of bad lines

    def check_run(self, run: dict[str, Any]) -> None:
        """Refuse to continue this run with another model or other settings."""
        # `on_error` may change from `stop`, with which no line was bad.
        free = {"on_error"} if self.run.get("on_error") == "stop" else set()
        differences = [
            f"{name} {_abbreviate(run.get(name))}, was {_abbreviate(self.run.get(name))}"
            for name in sorted({*run, *self.run} - free)
            if run.get(name) != self.run.get(name)
        ]
        if differences:
            raise ValueError(
                "--resume: expected the model and settings of the unfinished run, got "
                f"{', '.join(differences)}; give the same, or --force to start over."
            )


def _abbreviate(value: Any) -> str:
    is_hash = isinstance(value, str) and len(value) == 64
    return f"{value[:12]}…" if is_hash else shorten(json.dumps(value, ensure_ascii=False))


def content_digest(*paths: Path) -> str:
    """Return a hash of files, and of the names and contents of all files in folders."""
    digest = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                with file.open("rb") as opened:
                    content = hashlib.file_digest(opened, "sha256").hexdigest()
                digest.update(
                    f"{file.relative_to(path)} {content}\n".encode(errors="surrogateescape")
                )
    return digest.hexdigest()


def unfinished_run(path: Path) -> UnfinishedRun | None:
    """Return the record of an unfinished run that wrote a file, or None."""
    record = _neighbor(path, ".partial.json")
    if not record.exists():
        return None
    with one_line_error(
        f"{record}: expected the record of an unfinished run, got something else (",
        "); --force starts over.",
    ):
        done = UnfinishedRun(**read_json_object(record))
        types = {"run": dict} | {n: type(v) for n, v in UnfinishedRun._field_defaults.items()}
        if wrong := [name for name in types if type(getattr(done, name)) is not types[name]]:
            raise ValueError(f"another type of {', '.join(wrong)}")
    is_complete = path.is_file() and path.stat().st_size == done.size
    if is_complete and not _neighbor(path, ".partial").exists():
        record.unlink()  # the run ended after it had renamed its output
        return None
    return done


def _neighbor(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


class OutputFile:
    """A file that is written in parts to FILE.partial. The end of the block renames it to FILE.

    Each part is complete, also if the file is compressed. FILE.partial.json records the progress
    after each committed part, unless `run` is None. FILE.errors.jsonl names the lines that could
    not be processed. If the block ends with an error, FILE stays unchanged and FILE.partial
    contains all parts. The parts of an earlier run are replaced when the first part is written,
    unless `done` is the progress of a run that this one continues.
    """

    def __init__(
        self, path: Path, run: dict[str, Any] | None = None, done: UnfinishedRun | None = None
    ) -> None:
        self.path = path
        self.partial = _neighbor(path, ".partial")
        self.report = _neighbor(path, ".errors.jsonl")
        self.record = _neighbor(path, ".partial.json")
        self.done = done or UnfinishedRun(run or {})
        self.committed = self.done.lines  # lines of the input that --resume would skip
        self._next = self.done  # the progress after the part that is being written
        self._recorded = run is not None
        self._begun = done is not None

    def __enter__(self) -> "OutputFile":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._begun:
            sizes = ((self.partial, self.done.size), (self.report, self.done.report_size))
            for path, size in sizes:
                actual = path.stat().st_size if path.exists() else 0
                if actual < size:
                    raise ValueError(
                        f"{path}: expected at least {size:,} bytes of the unfinished run, got "
                        f"{actual:,}; --force starts over."
                    )
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
        """Write lines, and report the lines that could not be processed, before it returns."""
        self._begin()
        texts = [f"{line}\n" for line in lines]
        data = compress("".join(texts).encode(), compression(self.path)) if texts else b""
        self._next = self.done._replace(
            size=self.done.size + len(data), written=self.done.written + len(texts)
        )
        self._file.write(data)
        self._file.flush()
        self.done = self._next
        rows = []
        for line in bad:
            report = {"file": line.bad_file, "line": line.number, "reason": line.reason}
            rows.append(json.dumps(report, ensure_ascii=False) + "\n")
        if rows:
            data = "".join(rows).encode(errors="replace")  # a file's name may not be UTF-8
            with self.report.open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self.done = self.done._replace(
                report_size=self.done.report_size + len(data), bad=self.done.bad + len(rows)
            )

    def commit(self, lines: int, sha256: str, total: int) -> None:
        """Record that everything that was written so far is complete; see `UnfinishedRun`."""
        self.done = self.done._replace(lines=lines, sha256=sha256, total=total)
        if self._recorded:
            os.fsync(self._file.fileno())
            # It replaces the previous record atomically.
            record = json.dumps(self.done._asdict(), indent=2, sort_keys=True)
            replace_text(self.record, f"{record}\n")
            self.committed = lines

    def _begin(self) -> None:
        """Remove the files of an earlier run, at the first call."""
        if not self._begun:
            self.record.unlink(missing_ok=True)  # first: without it, the other files are not used
            self.report.unlink(missing_ok=True)
            self._file.truncate(0)
            self._begun = True

    def __exit__(self, error_type: type[BaseException] | None, *error: object) -> None:
        if error_type is None:
            self._begin()
            if not self.done.size:
                # A compressed file has at least one part.
                self._file.write(compress(b"", compression(self.path)))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            replace_file(self.partial, self.path)
            self.record.unlink(missing_ok=True)
            _neighbor(self.record, ".new").unlink(missing_ok=True)  # of a run that was killed
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
