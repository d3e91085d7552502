"""The nginx configuration of docs/serving.md, in front of a server."""

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "serving.md"
NGINX, OPENSSL = shutil.which("nginx"), shutil.which("openssl")
STREAM = "/v2/models/numbers/generate_stream"
pytestmark = pytest.mark.skipif(not (NGINX and OPENSSL), reason="needs nginx and openssl")


class Proxy(NamedTuple):
    """A running nginx and the certificate that it has for localhost."""

    port: int
    certificate: Path

    def connect(self):
        """A connection that checks the certificate."""
        context = ssl.create_default_context(cafile=self.certificate)
        return http.client.HTTPSConnection("localhost", self.port, timeout=60, context=context)

    def send(self, path, body=None):
        """Send a request, and return the status and the content of the answer."""
        with contextlib.closing(self.connect()) as connection:
            return send(connection, path, body)


def send(connection, path, body=None):
    connection.request("GET" if body is None else "POST", path, body)
    response = connection.getresponse()
    return response.status, response.read()


def configuration(folder, port, server_port):
    """The configuration of the document, with other ports and files of the test."""
    (text,) = re.findall(r"```nginx\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    for documented, tested in (
        ("127.0.0.1:8501;", f"127.0.0.1:{server_port};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("/etc/nginx/translator", f"{folder}/translator"),
    ):
        assert documented in text
        text = text.replace(documented, tested)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    user = "user root;\n" if os.geteuid() == 0 else ""  # the folders of pytest are private
    log = f"error_log {folder}/error.log;\npid {folder}/nginx.pid;\ndaemon off;\n"
    return f"{user}{log}events {{}}\nhttp {{\naccess_log off;\n{temporary}{text}}}\n"


def make_certificate(folder):
    """Write a key and a certificate of localhost for itself."""
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", folder / "translator.key", "-out", folder / "translator.pem"]
    command = [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *name, *files], check=True, capture_output=True)
    return folder / "translator.pem"


@pytest.fixture(scope="module")
def proxy(server, tmp_path_factory):
    """The documented nginx in front of the server."""
    folder = tmp_path_factory.mktemp("nginx")
    certificate = make_certificate(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = folder / "nginx.conf"
    file.write_text(configuration(folder, port, server.port), encoding="utf-8")
    command = [NGINX, "-p", folder, "-e", folder / "error.log", "-c", file]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.05)
    yield Proxy(port, certificate)
    process.terminate()
    process.wait(60)


def test_answers_equal_those_of_the_server(server, proxy):
    body = json.dumps({"q": ["forty-two", "seven"], "source": "en", "target": "de"})
    expected = server.send("/translate", body.encode()).content
    with contextlib.closing(proxy.connect()) as connection:
        for _ in range(3):
            status, content = send(connection, "/translate", body)
            assert (status, json.loads(content)) == (200, expected)


def test_server_knows_scheme_and_host_of_the_proxy(proxy):
    status, page = proxy.send("/")
    assert status == 200
    assert b"https://localhost/translate" in page


def test_events_of_a_stream_arrive_at_once(server, proxy):
    """The first event arrives before the stream ends, and a client that leaves ends the stream."""
    text = "one hundred ninety-nine. " * 190
    connection = proxy.connect()
    connection.request("POST", STREAM, json.dumps({"text_input": text}))
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("content-type") == ("text/event-stream; charset=utf-8")
    assert response.readline().startswith(b"data: ")
    assert [line for line in server.requests() if line["path"] == STREAM] == []
    response.close()
    connection.close()
    server.wait_until(lambda: [line for line in server.requests() if line["path"] == STREAM])


def test_large_bodies_and_metrics_are_refused(proxy):
    assert proxy.send("/translate", b" " * (2**20 + 1))[0] == 413
    assert proxy.send("/translate", b" " * 2**20)[0] == 400  # by the server
    assert proxy.send("/metrics")[0] == 403


def test_too_many_requests_are_refused(proxy):
    """The last test, since nginx counts the requests of all tests."""
    with contextlib.closing(proxy.connect()) as connection:
        statuses = {send(connection, "/health")[0] for _ in range(500)}
    assert statuses == {200, 429}
