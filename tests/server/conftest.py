"""A server of the command line in a process of its own, and its clients."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from tfk_transformer.export.runtime.opening import load

# An ONNX file is served without TensorFlow: importing it fails in these processes.
WITHOUT_TENSORFLOW = """
import sys
sys.modules.update(tensorflow=None, keras=None, tensorflow_text=None)
from tfk_transformer.apps.cli.main import main
main()
"""


LIVE, READY = "/v2/health/live", "/v2/health/ready"


class Answer(NamedTuple):
    status: int
    content: object  # strict JSON; bytes if it is none
    headers: dict


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


class Server:
    """A process, started with options of `tfk-transformer serve`."""

    def __init__(self, model, log, *options, environment=()):
        run = ["-c", WITHOUT_TENSORFLOW] if model.suffix == ".onnx" else ["-m", "tfk_transformer"]
        command = [sys.executable, *run, "serve", model, "--port", 0, *options]
        self.log = log
        with log.open("w") as output:
            variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **dict(environment)}
            self.process = subprocess.Popen(
                [*map(str, command)], stdout=output, stderr=subprocess.STDOUT, env=variables
            )
        while not (lines := self.lines()) and self.process.poll() is None:
            time.sleep(0.05)
        assert lines and lines[0]["event"] == "listening", log.read_text()
        self.url = lines[0]["url"]
        self.port = int(self.url.rpartition(":")[2])

    def lines(self):
        """The log, whose lines are all JSON."""
        text = self.log.read_text()
        try:
            return [
                json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")
            ]
        except ValueError:
            raise AssertionError(text) from None

    def requests(self):
        """The log's lines of the requests so far. A line is written after its answer, and before
        the next request is read.
        """
        self.send(LIVE)
        return [
            line for line in self.lines() if line["event"] == "request" and line["path"] != LIVE
        ]

    def send(self, path, body=None, method=None, headers=None, timeout=60):
        """Send a request, and return its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        data = body if isinstance(body, bytes | str | None) else json.dumps(body)
        connection.request(method or ("GET" if body is None else "POST"), path, data, headers or {})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        with contextlib.suppress(ValueError):
            content = json.loads(content, parse_constant=refuse)
        return Answer(
            response.status, content, {name.lower(): value for name, value in response.getheaders()}
        )

    def send_raw(self, data):
        """Send bytes, and return the status."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(data)
            response = http.client.HTTPResponse(connection)
            response.begin()
            return response.status

    def predict(self, *texts, **options):
        return self.send("/v1/models/numbers:predict", {"inputs": {"text": list(texts)}}, **options)

    def metric(self, name):
        """The value of a metric without labels."""
        lines = self.send("/metrics").content.decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    def wait_until(self, condition):
        """Wait until a condition holds, for as long as the slowest machine may need."""
        end = time.monotonic() + 120
        while not condition():
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)

    def begin_to_end(self, number):
        """Send a signal, and wait until the server has noticed it."""
        self.process.send_signal(number)
        self.wait_until(lambda: self.send(READY).status == 503)

    def stop(self, signals=(signal.SIGTERM,)):
        for number in signals:
            self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture(scope="session")
def local_model(exported):
    """The exported model, opened in this process to compare with."""
    return load(exported / "translate.onnx")


@pytest.fixture(scope="module")
def serve(exported, tmp_path_factory):
    """Start a server of the exported model; all end with the tests of the module."""
    servers = []

    def start(*options, file="translate.onnx", **others):
        log = tmp_path_factory.mktemp("server") / "log"
        servers.append(Server(exported / file, log, "--name", "numbers", *options, **others))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="module")
def server(serve):
    """A server with the default limits."""
    return serve("--source-language", "en", "--target-language", "de", "--drain-delay", 0)
