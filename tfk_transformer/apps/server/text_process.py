"""A second process of the server, which parses long bodies, and splits and joins long texts.

Python runs one thread of a process at a time. In the process of the server, the work of a long text
would hold up all requests. The second process has a lower priority, and uses what the server leaves
of the processors.
"""

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any, TypeAlias, TypeVar, cast

from tfk_transformer.text.road import Outcomes, Road, Sentences, advance

T = TypeVar("T")
Step: TypeAlias = Callable[[Outcomes | None], tuple[Sentences | None, T | None]]  # see `advance`
NICENESS = 5  # about a quarter of a processor, while the server uses all of them
THREADS = 8  # share the process, so that no text waits for the end of a longer one
LOST = "the process of long texts has ended"


class TextProcess:
    """Runs functions and roads in another process, which starts with the first of them.

    The processes send each other pickled messages through pipes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of the first pipe
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._numbers = itertools.count()  # of functions and roads
        self._replies: dict[int, Future[Any]] = {}
        self._ended: deque[int] = deque()  # roads that nobody advances any more

    def call(self, function: Callable[[], T]) -> T:
        """Return what a function returns in the other process; see `road` for the errors."""
        return cast(T, self._send(next(self._numbers), function).result())

    def road(self, make: Callable[[], Road[T]]) -> Step[T]:
        """Return a function that advances the road that `make` returns in the other process.

        It raises the errors of the road, and ConnectionError if the other process ends.
        """
        number = next(self._numbers)

        def step(outcomes: Outcomes | None) -> tuple[Sentences | None, T | None]:
            return self._send(number, make if outcomes is None else outcomes).result()

        weakref.finalize(step, self._ended.append, number)
        return step

    def _send(self, number: int, message: Any) -> Future[Any]:
        with self._lock:
            if self._reader is None or not self._reader.is_alive():
                self._start()
            reply = self._replies[number] = Future()
            ended = [self._ended.popleft() for _ in range(len(self._ended))]
            pipe = cast(IO[bytes], cast(subprocess.Popen[bytes], self._process).stdin)
            try:
                pipe.write(pickle.dumps((number, message, ended)))
                pipe.flush()
            except BrokenPipeError:
                raise ConnectionError(LOST) from None
        return reply

    def _start(self) -> None:
        self.stop()
        code = f"import sys; sys.path[:] = {sys.path!r}; import {__name__} as own; own.main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()

    def _read(self, pipe: IO[bytes]) -> None:
        """Pass the replies on until the other process ends."""
        try:
            while True:
                number, reply = pickle.load(pipe)
                future = self._replies.pop(number)
                if isinstance(reply, Exception):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        except (EOFError, pickle.UnpicklingError):  # the end of a message may be missing
            pass
        finally:
            while self._replies:
                self._replies.popitem()[1].set_exception(ConnectionError(LOST))

    def stop(self) -> None:
        """End the other process."""
        if self._process is None or self._reader is None:
            return
        self._process.kill()
        self._reader.join()
        with contextlib.suppress(BrokenPipeError), self._process:  # closes the pipes, and waits
            pass


def main() -> None:
    """Run functions and roads of the server until it ends; this runs in the other process."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the server still answers its requests
        signal.signal(number, signal.SIG_IGN)
    if hasattr(os, "nice"):  # not on Windows
        os.nice(NICENESS)
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    roads: dict[int, Road[Any]] = {}
    lock = threading.Lock()

    def answer(number: int, message: Any) -> Any:
        if not callable(message):
            if number not in roads:  # it was in an earlier process
                raise ConnectionError(LOST)
            return advance(roads[number], message)
        made = message()
        if not isinstance(made, Generator):
            return made
        roads[number] = made
        return advance(made, None)

    def reply(number: int, message: Any) -> None:
        try:
            data = pickle.dumps((number, answer(number, message)))
        except Exception as error:
            data = pickle.dumps((number, error))
        with lock:
            replies.write(data)
            replies.flush()

    threads = ThreadPoolExecutor(THREADS)
    while True:
        try:
            number, message, ended = pickle.load(requests)
        except EOFError:
            os._exit(0)  # without waiting for the threads
        for each in ended:
            roads.pop(each, None)
        threads.submit(reply, number, message)
