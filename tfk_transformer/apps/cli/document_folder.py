"""A folder of translated documents: its files, and the record that the next run continues from."""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from tfk_transformer.atomic_write import atomic_write, replace_text
from tfk_transformer.config.small_files import one_line_error, read_json_object
from tfk_transformer.formats.output_file import content_digest
from tfk_transformer.formats.registry import DOCUMENT_SUFFIXES

RECORD = ".translate-document.json"
MAX_RECORD_BYTES = 2**26  # a file has about 300
SECONDS_PER_RECORD = 1.0  # with many small files, writing the record would take most of the time
# Files in folders that programs read, although they have the suffix of a document.
PROGRAM_FILES = ("requirements*.txt", "robots.txt", "CMakeLists.txt", "*.json", "*.csv", "*.tsv")


class OtherFiles(StrEnum):
    """The action for files of a folder that are not translated."""

    COPY = "copy"
    LINK = "link"
    OMIT = "omit"


class DocumentError(ValueError):
    """A document that cannot be read."""


class FolderFile(NamedTuple):
    """A file of a folder."""

    source: Path
    name: str  # the path of the output below its folder, with "/"
    format: str | None  # of a document; None: another file


def folder_files(
    sources: Sequence[Path], output: Path, formats: Sequence[str | None], exclude: Sequence[str]
) -> tuple[Path, list[FolderFile], list[str]]:
    """Return the files of documents, which have `formats`, and of folders, whose format is None.

    Files in folders whose name or path matches a pattern in `exclude` are not documents.

    Returns:
        The folder whose tree the output keeps, the files, and why links and devices are left out.
    """
    parents = [source if len(sources) == 1 else source.parent for source in map(_absolute, sources)]
    base = Path(os.path.commonpath(parents))
    files: dict[str, FolderFile] = {}
    left_out: list[str] = []
    for source, format in zip(sources, formats, strict=True):
        if output.resolve().is_relative_to(source.resolve()):
            raise ValueError(
                f"--output: expected a folder outside of {source}, got {output}; name another one."
            )
        for path in [source] if format else _walk(source, source.resolve(), left_out):
            name = _absolute(path).relative_to(base).as_posix()
            file_format = format or _format_in_folder(name, (*PROGRAM_FILES, *exclude))
            files.setdefault(name, FolderFile(path, name, file_format))
    inputs = {file.source.resolve() for file in files.values()}
    if clash := next((name for name in files if output.resolve() / name in inputs), None):
        raise ValueError(
            f"--output: expected a folder without sources, got {output}, which contains {clash}; "
            "name another one."
        )
    return base, list(files.values()), left_out


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


def _walk(folder: Path, root: Path, left_out: list[str]) -> Iterator[Path]:
    """Yield the files below a folder of the resolved `root`, except in hidden folders."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(root)):
            left_out.append(f"{path}: a link to a folder, or out of the folder")
        elif path.is_dir():
            if not path.name.startswith("."):
                yield from _walk(path, root, left_out)
        elif path.is_file():
            yield path
        else:
            left_out.append(f"{path}: not a file")


def _format_in_folder(name: str, exclude: Sequence[str]) -> str | None:
    """Return the format of a document in a folder; None for another file, such as a Makefile."""
    path = PurePath(name)
    excluded = any(fnmatch(name, pattern) or fnmatch(path.name, pattern) for pattern in exclude)
    return None if excluded or not path.suffix else DOCUMENT_SUFFIXES.get(path.suffix.lower())


class FileRecord(NamedTuple):
    """The state of a file in the output folder."""

    inputs: str = ""  # the hash of its source and settings; "" if no translation was written
    sentences: int = 0
    kept: Sequence[tuple[int, str]] = ()  # line and beginning of each sentence without translation
    output: str = ""  # the hash of the file as it was written; "" while it is not


class OutputFolder:
    """The folder of the translations, and its record, from which the next run continues.

    The block writes the files that wait. The record names them before, so that another run writes
    them again if this one is killed, and marks them as written some time after.
    """

    def __init__(
        self,
        path: Path,
        base: Path,
        files: Sequence[FolderFile],
        other_files: OtherFiles,
        force: bool,
    ) -> None:
        """Read the record; refuse files of the folder that are not in it, or `force` them."""
        self.path = path
        self.base = base
        self.files = [file for file in files if file.format or other_files is not OtherFiles.OMIT]
        self.other_files = other_files
        self.records: dict[str, FileRecord] = {}
        self._saved = 0.0
        if (path / RECORD).exists():
            with one_line_error(
                f"{path / RECORD}: expected the record of a folder, got something else (",
                "); delete it, and give --force.",
            ):
                values = read_json_object(path / RECORD, MAX_RECORD_BYTES)["files"]
                self.records = {name: FileRecord(**values[name]) for name in values}
        for file in self.files:
            if force:
                self.records.pop(file.name, None)
            elif file.name not in self.records and os.path.lexists(path / file.name):
                raise ValueError(
                    f"--output: expected files that this command wrote, got {path / file.name}, "
                    f"which is not in {RECORD}; name another folder, or --force to replace it."
                )

    def waiting(self, settings: Any) -> tuple[dict[FolderFile, FileRecord], list[str]]:
        """Return the files to write, with new records, and the problems of edited files.

        `settings` are everything that translations depend on, except their sources.
        """
        waiting: dict[FolderFile, FileRecord] = {}
        problems = []
        for file in self.files:
            path, record = self.path / file.name, self.records.get(file.name, FileRecord())
            values = [settings, file.format] if file.format else self.other_files
            inputs = _hash(values, file.source)
            if record.output and record.inputs == inputs and os.path.lexists(path):
                continue
            is_file = path.is_file() and not path.is_symlink()
            if record.output and is_file and content_digest(path) != record.output:
                problems.append(
                    f"{path}: expected the file as this command wrote it, got an edited one; to "
                    "replace it, move it away, and run the command again."
                )
                continue
            waiting[file] = FileRecord(inputs)
            self.records[file.name] = record._replace(output="")
        return waiting, problems

    def __enter__(self) -> "OutputFolder":
        self.path.mkdir(parents=True, exist_ok=True)
        self._save()
        return self

    def __exit__(self, *error: object) -> None:
        written = [name for name in self.records if os.path.lexists(self.path / name)]
        self.records = {name: self.records[name] for name in written}
        self._save()

    def write(self, file: FolderFile, record: FileRecord, content: bytes | None = None) -> None:
        """Write a file, by default a copy of its source or a link to it."""
        path = self.path / file.name
        with atomic_write(path) as new:
            if content is not None:
                new.write_bytes(content)
            elif self.other_files is OtherFiles.LINK:
                new.symlink_to(os.path.relpath(file.source.resolve(), path.parent.resolve()))
            else:
                shutil.copy2(file.source, new)
        self.records[file.name] = record._replace(output=content_digest(path))
        if time.monotonic() - self._saved > SECONDS_PER_RECORD:
            self._save()

    def write_refused(self, file: FolderFile) -> None:
        """Keep the last translation of a document that cannot be read, or else copy or link it."""
        path, record = self.path / file.name, self.records[file.name]
        with contextlib.suppress(OSError):
            if record.inputs and path.exists():
                self.records[file.name] = record._replace(output=content_digest(path))
            elif self.other_files is not OtherFiles.OMIT:
                self.write(file, FileRecord())

    def without_source(self) -> list[str]:
        """Return the files of earlier runs whose sources are gone."""
        names = sorted({*self.records} - {file.name for file in self.files})
        paths = [self.path / name for name in names if not (self.base / name).exists()]
        return [str(path) for path in paths if path.exists()]

    def _save(self) -> None:
        files = {name: record._asdict() for name, record in self.records.items()}
        text = json.dumps({"files": files}, indent=1, sort_keys=True)
        replace_text(self.path / RECORD, f"{text}\n")
        self._saved = time.monotonic()


def _hash(settings: Any, source: Path) -> str:
    """Return a hash of settings and of a source."""
    content = ""
    with contextlib.suppress(OSError):  # reported when the file is read
        content = content_digest(source)
    return hashlib.sha256(json.dumps([settings, content], sort_keys=True).encode()).hexdigest()
