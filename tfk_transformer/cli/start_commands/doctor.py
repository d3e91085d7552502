"""`tfk-transformer doctor`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.cli.start_commands import machine, packages

EXAMPLES = """
tfk-transformer doctor
# For a program: everything as JSON.
tfk-transformer doctor --json
"""


def command(
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show what a bug report should contain: versions, processors, accelerators, memory, disk, and
    which installed parts load.

    The output has no user name, and the home folder is written as ~. The exit status is 1 if an
    installed part does not load.
    """
    loads = packages.loaded_parts()
    found: dict[str, Any] = {
        "versions": packages.versions(),
        "extras": packages.extras(),
        "loads": loads,
        "machine": machine.describe_machine(),
    }
    text = (
        json.dumps(found, indent=2, ensure_ascii=False) if json_output else "\n".join(_lines(found))
    )
    print(without_home(text))
    if any(result.startswith("fails") for result in loads.values()):
        sys.exit(1)


def without_home(text: str, home: Path | None = None) -> str:
    """Return a text in which the path of the home folder is ~."""
    path = str(home or Path.home()).rstrip("/")
    return text.replace(path, "~") if path else text


def _lines(found: dict[str, dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for title, values in found.items():
        lines += ["", title] if lines else [title]
        width = max(map(len, values))
        lines += [f"  {name:{width}}  {value}" for name, value in values.items()]
    return lines
