"""Run a Python program in the fork server of the tests: what shells find as `python` in tests.

    python -I -S fork_client.py SETTINGS -m tfk_transformer doctor

`ShellCommands` writes the settings. The program has this process's standard
streams, folder and environment, and its exit code becomes that of this process. With environment
variables that packages read when they are imported, it is run by Python itself.

Only modules that start in milliseconds are imported here.
"""

import json
import os
import signal
import socket
import sys

# What a shell sets for each program.
OF_SHELLS = {"SHLVL", "_"}


def late_variables(settings: dict) -> dict[str, str] | None:
    """Return the variables of the fork; None if others than late ones differ from the server's."""
    served, env = settings["served"], dict(os.environ)
    late, prefixes = OF_SHELLS | set(settings["late"]), tuple(settings["late_prefixes"])
    changed = {name for name in {*env, *served} if env.get(name) != served.get(name)}
    if any(name not in late and not name.startswith(prefixes) for name in changed):
        return None
    return env


def run(settings: dict, command: list[str], env: dict[str, str]) -> int:
    """Run a program in a fork and return its exit code, or the number of a signal below zero."""
    request = {"command": command, "cwd": os.getcwd(), "env": env}
    text = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(settings["address"])
        socket.send_fds(connection, [len(text).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(text)
        with connection.makefile("r") as answers:
            answers.readline()  # its process
            end = json.loads(answers.readline())
    with open(settings["seconds"], "a", encoding="utf-8") as file:
        file.write(f"{end['seconds']}\n")
    return end["returncode"]


def main() -> None:
    """Run the program of the command line, in a fork if that is possible."""
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    arguments = sys.argv[2:]
    inline = arguments[:1] in (["-c"], ["-m"])
    forked = inline or (arguments and not arguments[0].startswith("-"))
    env = late_variables(settings) if forked else None
    if env is None:
        os.execv(settings["python"], [settings["python"], *arguments])
    command = arguments if inline else ["", *arguments]
    code = run(settings, command, env)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
