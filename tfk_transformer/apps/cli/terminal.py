"""Text on terminals: the texts of users and of files must not control the terminal."""

import contextlib
import json
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from tfk_transformer.config.words import escape_controls

if TYPE_CHECKING:
    from rich.console import Console


def print_line(line: str, file: TextIO | None = None, end: str = "\n") -> None:
    """Print a line at once; on a terminal and in messages, without control characters.

    Pipes and files get the line unchanged. Without a file, the line goes to standard error, for
    messages.
    """
    file = file or sys.stderr
    if file is sys.stderr or file.isatty():
        line = escape_controls(line).replace("\n", "\\n")
    print(line, end=end, file=file, flush=True)


def console(stderr: bool = False) -> "Console":
    """Return a console for the texts of users and of files: without markup, controls escaped.

    Rich is imported only by the commands that print with it.
    """
    from rich.console import Console
    from rich.text import Text

    class EscapingConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(escape_controls(text), **options)

    return EscapingConsole(
        stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False
    )


def print_report(report: Mapping[str, Any], lines: Iterable[Any], as_json: bool) -> None:
    """Print the result of a command as a JSON object, or as lines or tables for people."""
    if as_json:
        print(json.dumps(report, indent=2))
        return
    for line in lines:
        console().print(line)


def command_line(words: Sequence[str]) -> str:
    """Return words as a line that the system's shell reads as these words."""
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


@contextlib.contextmanager
def plain_warnings(category: type[Warning]) -> Iterator[None]:
    """Print each warning of a category in this block as a line of standard error."""
    show_others = warnings.showwarning

    def show(message: Warning | str, shown: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(shown, category):
            print_line(f"warning: {message}")
        else:
            show_others(message, shown, *rest, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", category)
        warnings.showwarning = cast(Any, show)
        yield
