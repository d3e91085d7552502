"""Text on terminals: the texts of users and of files must not control the terminal."""

import contextlib
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TextIO, cast

from tfk_transformer.config.words import escape_controls


def print_line(line: str, file: TextIO | None = None, end: str = "\n") -> None:
    """Print a line at once; on a terminal and in messages, without control characters.

    Pipes and files get the line unchanged.

    Args:
        line: the line.
        file: the output. None: standard error, for messages.
        end: the text after the line.
    """
    file = file or sys.stderr
    if file is sys.stderr or file.isatty():
        line = escape_controls(line).replace("\n", "\\n")
    print(line, end=end, file=file, flush=True)


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
