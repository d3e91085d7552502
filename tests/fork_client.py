"""Run a Python program in a fork of the fork server, or in this process if that is impossible.

    python -I -S fork_client.py SOCKET SECONDS -m tfk_transformer doctor

The program has the standard streams, folder and environment of this process, which ends with its
exit code. Its processor seconds are appended to the file SECONDS. Only modules that start in
milliseconds are imported here.
"""

import json
import os
import socket
import sys

address, seconds, *command = sys.argv[1:]
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(address)
    socket.send_fds(connection, [b" "], [0, 1, 2])
    request = {"command": command, "cwd": os.getcwd(), "env": dict(os.environ)}
    connection.sendall(json.dumps(request).encode() + b"\n")
    end = json.loads(connection.makefile().readline() or "null")
if end is None:
    os.execv(sys.executable, [sys.executable, *command])
with open(seconds, "a", encoding="utf-8") as file:
    file.write(f"{end[1]}\n")
sys.exit(end[0])
