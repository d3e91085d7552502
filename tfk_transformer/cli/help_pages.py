"""Help pages of the commands: usage, options in groups, each with its value and default, and
examples.
"""

import inspect
import textwrap
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDTH = 120  # longer lines are hard to read
# Most columns for the names of options; below a longer name, the help starts on the next line.
NAMES = 27
LAST = "Resources"  # of the groups, before the options without a group


class HelpfulCommand(TyperCommand):
    """A command with such a help page. Its options name their values by `metavar`, and their groups
    by `rich_help_panel`.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the name of the command: [OPTIONS], and each argument as users
        write it.
        """
        return [
            "[OPTIONS]",
            *(
                _usage(param)
                for param in self.get_params(ctx)
                if param.param_type_name == "argument"
            ),
        ]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help page."""
        print_help(self, ctx)


class HelpfulGroup(TyperGroup):
    """A group of commands with such a help page, which lists the commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help page."""
        print_help(self, ctx)


def print_help(command: TyperCommand | TyperGroup, ctx: Any) -> None:
    """Print the help page of a command to standard output."""
    from rich.console import Console

    console = Console(highlight=False)
    console.width = min(console.width, WIDTH)
    console.print(
        f"Usage: {' '.join([ctx.command_path, *command.collect_usage_pieces(ctx)])}\n",
        style="bold",
        markup=False,
    )
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        console.print(
            textwrap.fill(" ".join(paragraph.split()), console.width, break_on_hyphens=False)
            + "\n",
            markup=False,
        )
    panels = _panels(command, ctx)
    # Commands have short names.
    apart = {"Options": panels.pop("Options")} if isinstance(command, TyperGroup) else {}
    for aligned in (panels, apart):
        width = (
            min(NAMES, max((len(name) for rows in aligned.values() for name, _ in rows), default=0))
            + 2
        )
        for title, rows in aligned.items():
            _print_panel(console, title, rows, width)
    if command.epilog:
        console.print("\nExamples", style="bold")
        for line in command.epilog.strip().splitlines():
            console.print(
                f"  {line}",
                style="dim" if line.startswith("#") else "",
                markup=False,
                soft_wrap=True,
            )


def _panels(command: TyperCommand | TyperGroup, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the rows of each panel, names and help, by title: arguments, commands, groups of
    options, other options.
    """
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": []}
    if isinstance(command, TyperGroup):
        for name in command.list_commands(ctx):
            found: Any = command.get_command(ctx, name)
            panels.setdefault(found.rich_help_panel or "Commands", []).append(
                (name, found.get_short_help_str(limit=1000))
            )
    others: list[tuple[str, str]] = []
    for param in command.get_params(ctx):
        title = (
            "Arguments"
            if param.param_type_name == "argument"
            else getattr(param, "rich_help_panel", None)
        )
        if not getattr(param, "hidden", False):
            (panels.setdefault(title, []) if title else others).append(
                (_names(param), _help(param, ctx))
            )
    if LAST in panels:
        panels[LAST] = panels.pop(LAST)
    panels["Options"] = others
    return {title: rows for title, rows in panels.items() if rows}


def _usage(argument: Any) -> str:
    name = f"{argument.metavar or argument.name.upper()}{'...' if argument.nargs != 1 else ''}"
    return name if argument.required else f"[{name}]"


def _names(param: Any) -> str:
    """Return how an argument or an option is written: "TEXT...", "-o, --output FILE",
    "--[no-]towers".
    """
    if param.param_type_name == "argument":
        return _usage(param).strip("[]")
    names = sorted(param.opts, key=len)
    if param.secondary_opts:
        names[-1] = names[-1].replace("--", "--[no-]", 1)
    indent = "" if len(names[0]) == 2 else "    "
    value = "" if param.is_flag else f" {param.metavar or param.name.upper()}"
    return f"{indent}{', '.join(names)}{value}"


def _help(param: Any, ctx: Any) -> str:
    text = param.help or ""
    if param.required and param.param_type_name == "option":
        return f"{text} Required."
    default = param.get_default(ctx, call=False)
    if param.show_default is False or default in (None, False) or "Default:" in text:
        return text
    if param.is_flag:
        value = param.name if default else f"no-{param.name}"
    else:
        value = getattr(default, "value", default)
    return f"{text} Default: {value}."


def _print_panel(console: "Console", title: str, rows: list[tuple[str, str]], width: int) -> None:
    from rich.panel import Panel
    from rich.text import Text

    lines = Text()
    for name, text in rows:
        lines.append_text(
            _row(
                name,
                textwrap.wrap(text, console.width - width - 4, break_on_hyphens=False) or [""],
                width,
            )
        )
    lines.right_crop(1)  # the last line break
    console.print(Panel(lines, title=title, title_align="left", border_style="dim"))


def _row(name: str, lines: list[str], width: int) -> "Text":
    """Return the name of an option beside its help, or above it if the name is long."""
    from rich.text import Text

    row = Text(no_wrap=True)
    if len(name) > width - 2:
        row.append(f"{name}\n", "bold cyan")
        name = ""
    row.append(name.ljust(width), "bold cyan")
    row.append(f"\n{'':{width}}".join(lines) + "\n")
    return row
