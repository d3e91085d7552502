"""A process that imports TensorFlow once and forks for each program that a test runs.

`python fork_server.py SOCKET PID` returns when the socket accepts connections, and leaves a process
that ends with the process PID. `fork_client.py` connects to it. The process can fork because it
has imported TensorFlow but not used it.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
import types
from pathlib import Path

# Packages read the variables whose names begin so when they are imported.
AT_IMPORT = tuple("CUDA JAX_ KERAS_ LD_ MALLOC_ OMP_ PYTHON TF_CPP TF_ENABLE XLA_".split())
# The variables before packages change them.
ENVIRONMENT = dict(os.environ)


def import_packages() -> None:
    import tfk_transformer
    from tfk_transformer.runtime_environment import load_backend

    load_backend()  # TensorFlow, with the settings that the library uses
    # Apache Beam is in an environment of its own.
    for module in pkgutil.walk_packages(tfk_transformer.__path__, "tfk_transformer."):
        if ".beam" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.freeze()  # The programs share these objects; a collection would copy their pages.


def serve(listener: socket.socket, parent: int) -> None:
    """Fork for each client until the parent ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for those of clients
    end = os.pidfd_open(parent)
    while end not in select.select([listener, end], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            answer(connection)
            os._exit(0)
        connection.close()


def answer(connection: socket.socket) -> None:
    """Run the program of a client in a fork, and send its exit code and processor seconds."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.loads(connection.makefile().readline())
    if not can_fork(request["command"], request["env"]):
        return  # Without an answer, the client itself becomes the program.
    program = os.fork()
    if program == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        run_and_exit(**request)
    if connection in select.select([connection, os.pidfd_open(program)], [], [])[0]:
        os.kill(program, signal.SIGKILL)  # the client was killed
        return
    _, status, used = os.wait4(program, 0)
    end = [os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]
    connection.sendall(json.dumps(end).encode() + b"\n")


def can_fork(command: list[str], env: dict[str, str]) -> bool:
    """Return whether a program has no options of Python, and its packages would be as here."""
    if not command or (command[0].startswith("-") and command[0] not in ("-c", "-m")):
        return False
    names = filter(lambda name: name.startswith(AT_IMPORT), {*env, *os.environ})
    return all(env.get(name) in (ENVIRONMENT.get(name), os.environ.get(name)) for name in names)


def run(command: list[str], cwd: str, env: dict[str, str]) -> None:
    """Run a program as a new interpreter would: its arguments, folder, environment and module."""
    os.chdir(cwd)
    os.environ.update(env)  # after the variables that packages have set
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.modules["numpy"].random.seed()  # Python's generator has a new seed in a fork
    first, *arguments = command
    if first == "-m":
        sys.argv, sys.path[0] = arguments, cwd
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        source, file, sys.path[0] = arguments.pop(0), "<string>", ""
    else:
        source, file = Path(first).read_text(encoding="utf-8"), os.path.abspath(first)
        main.__file__, sys.path[0] = file, os.path.dirname(os.path.realpath(first))
    sys.argv = [first, *arguments]
    exec(compile(source, file, "exec"), main.__dict__)


def run_and_exit(**program) -> None:
    """Run a program and end this process; TensorFlow cannot end as usual in a fork."""
    code = 0
    try:
        run(**program)
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
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    address, parent = sys.argv[1], int(sys.argv[2])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        if os.fork() == 0:  # Clients wait until this process has imported the packages.
            import_packages()
            serve(listener, parent)
