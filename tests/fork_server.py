"""A process that imports TensorFlow once and forks for each program that a test runs.

`python fork_server.py SOCKET PID` returns when the socket accepts connections, and leaves a process
that ends with the process PID. `fork_client.py` connects to it.

A process that has imported TensorFlow and not used it can fork.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import select
import signal
import socket
import sys
import threading
import types

# Packages read variables with these names when they are imported.
AT_IMPORT = (
    "CUDA",
    "JAX_",
    "KERAS_",
    "LD_",
    "MALLOC_",
    "OMP_",
    "PYTHON",
    "TF_CPP",
    "TF_ENABLE",
    "XLA_",
)


def import_packages() -> None:
    """Import what programs of the tests need; Apache Beam is in an environment of its own."""
    import tensorflow  # noqa: F401, I001
    import tensorflow_text  # noqa: F401
    import tfk_transformer

    for module in pkgutil.walk_packages(tfk_transformer.__path__, "tfk_transformer."):
        if ".beam" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def serve(listener: socket.socket, parent: int, before: dict[str, str]) -> dict | None:
    """Fork for each client until the parent ends; in the fork for a program, return its request.

    Args:
        listener: accepts the clients.
        parent: the process that the server ends with.
        before: the environment before packages were imported.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes of clients
    listener.settimeout(1)
    while True:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            try:
                os.kill(parent, 0)
            except ProcessLookupError:
                return None
            continue
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return answer(connection, before)
        connection.close()


def answer(connection: socket.socket, before: dict[str, str]) -> dict:
    """Run the program of a client in a fork, and send its end; return the request in the fork."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.loads(connection.makefile().readline())
    variables = {name for name in {*request["env"], *os.environ} if name.startswith(AT_IMPORT)}
    if any(request["env"].get(n) not in (before.get(n), os.environ.get(n)) for n in variables):
        connection.sendall(b"null\n")
        os._exit(0)
    program = os.fork()
    if program == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return request
    if connection in select.select([connection, os.pidfd_open(program)], [], [])[0]:
        os.kill(program, signal.SIGKILL)  # the client was killed
        os._exit(0)
    _, status, used = os.wait4(program, 0)
    end = [os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]
    connection.sendall(json.dumps(end).encode() + b"\n")
    os._exit(0)


def run(request: dict) -> None:
    """Run a program as a new interpreter would: its arguments, folder, environment and module."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    random.seed()
    sys.modules["numpy"].random.seed()
    kind, *arguments = request["command"]
    if kind == "-m":
        sys.argv, sys.path[0] = arguments, os.getcwd()
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    if kind == "-c":
        code, *sys.argv[1:] = arguments
        sys.argv[0], sys.path[0] = "-c", ""
        file = "<string>"
    else:
        sys.argv, sys.path[0] = [kind, *arguments], os.path.dirname(os.path.realpath(kind))
        file = main.__file__ = os.path.abspath(kind)
        with open(kind, "rb") as opened:
            code = opened.read()
    exec(compile(code, file, "exec"), main.__dict__)


def run_and_exit(request: dict) -> None:
    """Run a program and end this process; TensorFlow cannot end as usual in a fork."""
    code = 0
    try:
        run(request)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and code is not end.code:
            print(end.code, file=sys.stderr)
    except BaseException as error:
        trace = error.__traceback__.tb_next.tb_next  # without the frames of this file
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stderr, sys.stdout):
        if not stream.closed:
            stream.flush()
    os._exit(code & 0xFF)


def main() -> None:
    """Listen, import, and serve."""
    address, parent = sys.argv[1], int(sys.argv[2])
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    if os.fork():
        os._exit(0)  # Clients wait until the process that goes on has imported the packages.
    before = dict(os.environ)
    import_packages()
    gc.collect()
    gc.freeze()  # The programs share these objects; a collection would copy their pages.
    added = {name: value for name, value in os.environ.items() if name not in before}
    if request := serve(listener, parent, before):
        request["env"] = added | request["env"]
        run_and_exit(request)


if __name__ == "__main__":
    main()
