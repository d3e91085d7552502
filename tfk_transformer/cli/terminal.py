"""Text on terminals: the texts of users and of files must not control the terminal."""

import sys
from typing import TextIO

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
