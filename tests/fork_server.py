"""A process that imports TensorFlow once and forks for each program that a test runs.

`forked_programs.run_program` starts it, as `python fork_server.py SOCKET PID`. It ends with the
process PID, which is pytest's. A process that has imported TensorFlow and not used it can fork.
"""

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import random
import runpy
import selectors
import signal
import socket
import sys
import threading
import types

OWN_FRAMES = (__file__, runpy.__file__, "<frozen runpy>")  # above those of a program


def import_packages() -> None:
    """Import what programs of the tests need; Apache Beam is in an environment of its own."""
    import tensorflow  # noqa: F401, I001
    import tensorflow_text  # noqa: F401
    import tfk_transformer

    for module in pkgutil.walk_packages(tfk_transformer.__path__, "tfk_transformer."):
        if ".beam" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def receive(connection: socket.socket) -> tuple[dict, list[int]]:
    """Return a request and the file descriptors that come with it."""
    size, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    left, text = int.from_bytes(size, "big"), b""
    while len(text) < left:
        text += connection.recv(left - len(text))
    return json.loads(text), descriptors


def send(connection: socket.socket, **answer) -> None:
    """Send a line of JSON to a client, which may be gone."""
    try:
        connection.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        pass


def serve(listener: socket.socket, parent: int) -> dict | None:
    """Fork for each request until the parent ends; in a fork, return its request."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(os.pidfd_open(parent), selectors.EVENT_READ, "parent")
    while True:
        for key, _ in selector.select():
            if key.data == "parent":
                return None
            if key.fileobj is listener:
                connection, _ = listener.accept()
                request, descriptors = receive(connection)
                program = os.fork()
                if program == 0:
                    for number, descriptor in enumerate(descriptors):
                        os.dup2(descriptor, number)
                    for open_file in [*descriptors, *selector.get_map()]:
                        os.close(open_file)
                    connection.close()
                    return request
                for descriptor in descriptors:
                    os.close(descriptor)
                send(connection, pid=program)
                watched = os.pidfd_open(program)
                selector.register(watched, selectors.EVENT_READ, (program, connection))
            else:
                program, connection = key.data
                selector.unregister(key.fileobj)
                os.close(key.fileobj)
                _, status, used = os.wait4(program, 0)
                code, seconds = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
                send(connection, returncode=code, seconds=seconds)
                connection.close()


def reopened(stream: io.TextIOWrapper, number: int) -> io.TextIOWrapper:
    """Return a stream like `stream`, which remembers whether its former file could seek."""
    buffer = io.FileIO(number, "w" if number else "r", closefd=False)
    if not isinstance(stream.buffer, io.RawIOBase):
        buffer = type(stream.buffer)(buffer)
    return io.TextIOWrapper(
        buffer,
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def run(request: dict, added: dict[str, str]) -> None:
    """Run a program as a new interpreter would: its arguments, folder, environment and module.

    Args:
        request: of a client.
        added: the environment variables that imported packages set.
    """
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(added | request["env"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, reopened(getattr(sys, name), number))
    random.seed()
    sys.modules["numpy"].random.seed()
    kind, program, *arguments = request["command"]
    sys.argv = ["-c" if kind == "-c" else program, *arguments]
    if kind == "-m":
        sys.path[0] = os.getcwd()
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    if kind == "-c":
        sys.path[0] = ""
        code = compile(program, "<string>", "exec")
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(program))
        main.__file__ = os.path.abspath(program)
        with open(program, "rb") as file:
            code = compile(file.read(), main.__file__, "exec")
    exec(code, main.__dict__)


def run_and_exit(request: dict, added: dict[str, str]) -> None:
    """Run a program, and end this process as an interpreter ends."""
    code = 0
    try:
        run(request, added)
    except SystemExit as end:
        if isinstance(end.code, int):
            code = end.code & 0xFF
        elif end.code is not None:
            print(end.code, file=sys.stderr)
            code = 1
    except BaseException as error:
        shown = error.__traceback__
        while shown and shown.tb_frame.f_code.co_filename in OWN_FRAMES:
            shown = shown.tb_next
        sys.excepthook(type(error), error.with_traceback(shown), shown)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stderr, sys.stdout):
            if stream and not stream.closed:
                stream.flush()
    except OSError:
        code = 120
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main() -> None:
    """Import, listen, and serve."""
    address, parent = sys.argv[1], int(sys.argv[2])
    if os.fork():
        os._exit(0)  # The process that waits for this program does not wait for the server.
    before = dict(os.environ)
    import_packages()
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.collect()
    gc.freeze()  # The programs share these objects; a collection would copy their pages.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    os.rename(f"{address}.new", address)
    if request := serve(listener, parent):
        run_and_exit(request, added)


if __name__ == "__main__":
    main()
