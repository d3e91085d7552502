"""Run a Python program in a fork of the fork server, or in this process if that is impossible.

    python -I -S fork_client.py SOCKET SECONDS -m tfk_transformer doctor

The program has the standard streams, folder and environment of this process, which ends with the
exit code of the program. Its processor seconds are appended to the file SECONDS. Only modules that
start in milliseconds are imported here.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Run the program of the command line."""
    address, seconds, *command = sys.argv[1:]
    end = None
    if command[:1] and (command[0] in ("-c", "-m") or not command[0].startswith("-")):
        request = {"command": command, "cwd": os.getcwd(), "env": dict(os.environ)}
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            socket.send_fds(connection, [b"3"], [0, 1, 2])
            connection.sendall(json.dumps(request).encode() + b"\n")
            end = json.loads(connection.makefile().readline())
    if end is None:  # other variables, or an option of Python
        os.execv(sys.executable, [sys.executable, *command])
    with open(seconds, "a", encoding="utf-8") as file:
        file.write(f"{end[1]}\n")
    if end[0] < 0:
        signal.signal(-end[0], signal.SIG_DFL)
        os.kill(os.getpid(), -end[0])
    sys.exit(end[0])


if __name__ == "__main__":
    main()
