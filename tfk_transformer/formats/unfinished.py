"""The record of an unfinished run: a small file next to its output, which `--resume` reads."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from tfk_transformer.atomic_write import replace_text


class UnfinishedRun(NamedTuple):
    """The progress of a run. Everything that is counted here is on the disk."""

    run: dict[str, Any]  # everything that the results depend on, by name
    lines: int = 0  # lines of the input that were read
    sha256: str = ""  # the hash of these lines
    total: int = 0  # texts in these lines: without the header
    bad: int = 0  # texts in these lines that could not be processed
    written: int = 0  # lines of the output
    size: int = 0  # bytes of the output
    report_size: int = 0  # bytes of the report of bad lines

    def save(self, path: Path) -> None:
        """Write this record. It replaces the previous one atomically."""
        replace_text(path, json.dumps(self._asdict(), indent=2, sort_keys=True) + "\n")

    @classmethod
    def load(cls, path: Path) -> "UnfinishedRun":
        """Read a record.

        Raises:
            ValueError: if the file does not contain a record.
        """
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}: expected the record of an unfinished run, got something else "
                f"({error}); --force starts over."
            ) from None

    def check_run(self, run: dict[str, Any]) -> None:
        """Refuse to continue this run with another model or other settings.

        Only `on_error` may change, and only from `stop`, with which no line was bad.

        Raises:
            ValueError: with all values that differ.
        """
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


def _abbreviate(value: Any) -> str:
    is_hash = isinstance(value, str) and len(value) == 64
    return f"{value[:12]}…" if is_hash else json.dumps(value, ensure_ascii=False)
