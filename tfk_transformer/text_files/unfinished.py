"""What is known of an unfinished run: a small file beside its output, which `--resume` reads."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from tfk_transformer.atomic_write import replace_text


class Unfinished(NamedTuple):
    """How far a run has come. Everything that is counted here is on the disk."""

    run: dict[str, Any]  # what the results depend on, by name
    lines: int = 0  # lines of the input that were read
    sha256: str = ""  # the hash of these lines
    total: int = 0  # of these, texts: without the header
    bad: int = 0  # of these, texts that could not be processed
    written: int = 0  # lines of the output
    size: int = 0  # bytes of the output
    report_size: int = 0  # bytes of the report of bad lines

    def save(self, path: Path) -> None:
        """Write this record, which replaces the one before at once."""
        replace_text(path, json.dumps(self._asdict(), indent=2, sort_keys=True) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Unfinished":
        """Read a record.

        Raises:
            ValueError: if the file has none.
        """
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}: expected the record of an unfinished run, got none ({error}); --force "
                "starts anew."
            ) from None

    def check_run(self, run: dict[str, Any]) -> None:
        """Refuse to continue this run as another one. Only `on_error` may change, from `stop`, with
        which no line was bad.

        Raises:
            ValueError: with all values that differ.
        """
        free = {"on_error"} if self.run.get("on_error") == "stop" else set()
        names = [
            name for name in sorted({*run, *self.run} - free) if run.get(name) != self.run.get(name)
        ]
        if names:
            found = ", ".join(
                f"{name} {_shown(run.get(name))}, was {_shown(self.run.get(name))}"
                for name in names
            )
            raise ValueError(
                f"--resume: expected the model and settings of the unfinished run, got {found}; "
                "give the same, or --force to start anew."
            )


def content_digest(*paths: Path) -> str:
    """Return a hash of files, or of all files in folders, with their names."""
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


def _shown(value: Any) -> str:
    return (
        f"{value[:12]}…"
        if isinstance(value, str) and len(value) == 64
        else json.dumps(value, ensure_ascii=False)
    )
