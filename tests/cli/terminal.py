"""A pseudo-terminal that a program runs in, as at a user's keyboard."""

import codecs
import os
import pty
import re
import select
import sys
import time
from pathlib import Path

SECONDS = 120


class Terminal:
    """The command line in a process of its own, with a terminal of 80 columns as standard input,
    output and error.
    """

    def __init__(self, *arguments: object, output: Path | None = None, **environment: str):
        self.seen = ""
        # A read can end within a character or within a sequence that moves the cursor.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._incomplete = ""
        self.process, self.descriptor = pty.fork()
        if self.process == 0:
            os.environ.update(TERM="xterm", COLUMNS="80", LINES="24", NO_COLOR="1", **environment)
            if output is not None:
                os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 1)
            os.execv(
                sys.executable, [sys.executable, "-m", "tfk_transformer", *map(str, arguments)]
            )

    def type(self, text: str) -> None:
        """Type a text; Enter is a line break, and Ctrl-D is \\x04."""
        os.write(self.descriptor, text.encode())

    def until(self, text: str) -> str:
        """Wait for a text, and return what appeared up to it since the last call."""
        deadline = time.monotonic() + SECONDS
        while text not in self.seen:
            assert time.monotonic() < deadline and self._read(), f"no {text!r} in {self.seen!r}"
        actual, _, self.seen = self.seen.partition(text)
        return actual + text

    def end(self) -> tuple[int, str]:
        """Wait for the end of the program; return its exit status and what appeared since the last
        call.
        """
        while self._read():
            pass
        _, status = os.waitpid(self.process, 0)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status), self.seen

    def _read(self) -> bool:
        """Read what appears within some time; return False at the end."""
        if not select.select([self.descriptor], [], [], SECONDS)[0]:
            return False
        try:
            new = os.read(self.descriptor, 65536)
        except OSError:  # the program has ended
            return False
        text = self._incomplete + self._decoder.decode(new)
        complete = re.sub(r"\x1b(\[[0-9;?]*)?$", "", text)
        self._incomplete = text[len(complete) :]
        self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", complete)  # no colors and movements
        return bool(new)
