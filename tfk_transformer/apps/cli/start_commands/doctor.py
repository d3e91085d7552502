"""`tfk-transformer doctor`."""

import json
import sys
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from tfk_transformer.apps.cli.start_commands import machine, packages

EXAMPLES = """
tfk-transformer doctor
# Print all of this as JSON, for programs.
tfk-transformer doctor --json
"""


def command(
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show the information for a bug report: versions, processors, accelerators, memory, disk, and
    whether each installed part loads.

    The output does not contain a user name: the home folder is written as ~. The exit status is 1
    if an installed part does not load.
    """
    loads = packages.load_parts()
    report: dict[str, Any] = {
        "versions": packages.versions(),
        "extras": packages.extras(),
        "loads": loads,
        "machine": machine.describe_machine(),
    }
    lines = (
        [json.dumps(report, indent=2, ensure_ascii=False)] if json_output else _text_lines(report)
    )
    print(without_home("\n".join(lines)))
    if any(result.startswith("fails") for result in loads.values()):
        sys.exit(1)


def without_home(text: str, home: PurePath | None = None) -> str:
    """Replace the path of the home folder in a text by ~."""
    home = home or Path.home()
    if not home.name:  # the root of a disk
        return text
    in_json = json.dumps(str(home), ensure_ascii=False)[1:-1]  # backslashes are doubled
    return text.replace(in_json, "~").replace(str(home), "~")


def _text_lines(report: dict[str, dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for title, values in report.items():
        lines += ["", title] if lines else [title]
        width = max(map(len, values))
        lines += [f"  {name:{width}}  {value}" for name, value in values.items()]
    return lines
