"""Help pages of the commands: usage, groups of options with their values and defaults, examples."""

import inspect
import itertools
import re
import textwrap
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from rich.text import Text

WIDTH = 120  # longer lines are hard to read
MIN_WIDTH = 20  # narrower terminals break the lines
NARROW = 60  # on narrower terminals, all help starts on a new line
MAX_NAME_WIDTH = 27  # in columns; the help of an option with a longer name starts on a new line
LAST_GROUP = "Resources"  # comes before the options without a group


def help_of(command: Any) -> str:
    """Return the text of a command's docstring before Args, whose texts become the options' help.

    Parameters that several commands share have their own help.
    """
    text, _, section = inspect.cleandoc(command.__doc__ or "").partition("\n\nArgs:\n")
    parameters = inspect.signature(command).parameters
    for entry in filter(None, re.split(r"\n(?=\w)", textwrap.dedent(section))):
        name, _, param_help = entry.partition(": ")
        (info,) = parameters[name].annotation.__metadata__
        info.help = " ".join(param_help.split())
    return text


def print_help(command: TyperCommand | TyperGroup, ctx: Any, formatter: Any) -> None:
    """Print the help page of a command, as its method `format_help`."""
    from rich.console import Console
    from rich.panel import Panel

    console = Console(highlight=False)
    console.width = max(MIN_WIDTH, min(console.width, WIDTH))
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    console.print(f"Usage: {usage}\n", style="bold", markup=False)
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        text = textwrap.fill(" ".join(paragraph.split()), console.width, break_on_hyphens=False)
        console.print(f"{text}\n", markup=False)
    panels = _panels(command, ctx)
    # The names of commands are short, so the options of a group are aligned separately.
    separate = {"Options": panels.pop("Options")} if isinstance(command, TyperGroup) else {}
    for aligned in (panels, separate):
        limit = MAX_NAME_WIDTH if console.width >= NARROW else 0
        all_rows = itertools.chain(*aligned.values())
        width = min(limit, max((len(name) for name, _ in all_rows), default=0)) + 2
        for title, rows in aligned.items():
            lines = _lines(rows, width, console.width - 4)
            console.print(Panel(lines, title=title, title_align="left", border_style="dim"))
    if command.epilog:
        console.print("\nExamples", style="bold")
        for line in command.epilog.strip().splitlines():
            style = "dim" if line.startswith("#") else ""
            console.print(f"  {line}", style=style, markup=False, soft_wrap=True)


class HelpfulCommand(TyperCommand):
    """A command whose `metavar` names the value of an option, and `rich_help_panel` its group."""

    format_help = print_help

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the name of the command: [OPTIONS] and the arguments."""
        arguments = [param for param in self.get_params(ctx) if param.param_type_name == "argument"]
        return ["[OPTIONS]", *map(_usage, arguments)]


class HelpfulGroup(TyperGroup):
    """A group whose help page lists its commands."""

    format_help = print_help


def _panels(command: TyperCommand | TyperGroup, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return rows of names and their help by title: arguments, commands, groups of options."""
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": []}
    if isinstance(command, TyperGroup):
        for name in command.list_commands(ctx):
            subcommand: Any = command.get_command(ctx, name)
            rows = panels.setdefault(subcommand.rich_help_panel or "Commands", [])
            rows.append((name, subcommand.get_short_help_str(limit=1000)))
    for param in command.get_params(ctx):
        group = getattr(param, "rich_help_panel", None) or "Options"
        title = "Arguments" if param.param_type_name == "argument" else group
        if not getattr(param, "hidden", False):
            panels.setdefault(title, []).append((_names(param), _help(param, ctx)))
    for title in (LAST_GROUP, "Options"):
        panels[title] = panels.pop(title, [])
    return {title: rows for title, rows in panels.items() if rows}


def _usage(argument: Any) -> str:
    name = f"{argument.metavar or argument.name.upper()}{'...' if argument.nargs != 1 else ''}"
    return name if argument.required else f"[{name}]"


def _names(param: Any) -> str:
    """Return the syntax of a parameter: "TEXT...", "-o, --output FILE" or "--[no-]towers"."""
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


def _lines(rows: list[tuple[str, str]], width: int, total_width: int) -> "Text":
    """Return each name next to its help, or above the help if the name is longer than `width`."""
    from rich.text import Text

    lines = Text()
    for name, text in rows:
        if len(name) > width - 2:
            lines.append(f"{name}\n", "bold cyan")
            name = ""
        lines.append(name.ljust(width), "bold cyan")
        wrapped = textwrap.wrap(text, total_width - width, break_on_hyphens=False) or [""]
        lines.append(f"\n{'':{width}}".join(wrapped) + "\n")
    lines.right_crop(1)  # the last line break
    return lines
