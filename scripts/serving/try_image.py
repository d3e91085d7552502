"""Run the commands of the Dockerfile without a container engine.

    python scripts/serving/try_image.py ENVIRONMENT FILE.onnx TEXT

ENVIRONMENT has the packages that the image would have. The server runs as in the image, except for
its port, its user and the path of the file, until the health check passes. The translation of TEXT
is printed, and the image's stop signal must end the server with status 0.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

SECONDS = 60  # until the server must be healthy: the start period of HEALTHCHECK

environment, file, text = sys.argv[1:]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
dockerfile = Path(__file__).with_name("Dockerfile").read_text().replace("8501", port)


def command(instruction: str) -> list[str]:
    """Return the JSON command of the last line that begins with an instruction."""
    lines = re.findall(rf"(?m)^ *{instruction} (\[.*\])$", dockerfile)
    return json.loads(lines[-1])


# The first CMD is part of HEALTHCHECK, the last one has the arguments of ENTRYPOINT.
server_command = [*command("ENTRYPOINT"), *command("CMD")]
server_command[server_command.index("/model/translate.onnx")] = file
server_command += ["--name", "model"]
health = json.loads(re.search(r"HEALTHCHECK[^[]*(\[.*\])", dockerfile)[1])
stop_signal = getattr(signal, re.search(r"STOPSIGNAL (\w+)", dockerfile)[1])
variables = {"PATH": os.pathsep.join([f"{environment}/bin", os.environ["PATH"]])}

server = subprocess.Popen(server_command, env=variables, stdout=subprocess.DEVNULL)
try:
    end = time.monotonic() + SECONDS
    while subprocess.run(health, env=variables, stderr=subprocess.DEVNULL).returncode != 0:
        if server.poll() is not None or time.monotonic() > end:
            sys.exit(f"error: expected a healthy server within {SECONDS} s, got none")
        time.sleep(0.2)
    address = f"http://127.0.0.1:{port}/v1/models/model:predict"
    body = json.dumps({"instances": [text]}).encode()
    with urllib.request.urlopen(address, body, timeout=30) as response:
        print(json.load(response)["predictions"][0]["translation"])
    server.send_signal(stop_signal)
    status = server.wait(30)
    if status != 0:
        sys.exit(f"error: expected status 0 after {stop_signal.name}, got {status}")
finally:
    server.kill()
