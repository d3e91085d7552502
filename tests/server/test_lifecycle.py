"""Batches of several clients, and the end of the server."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import Counter

from tfk_transformer.apps.server import monitoring

PREDICT, LIVE, READY = "/v1/models/numbers:predict", "/v2/health/live", "/v2/health/ready"
TEXTS = {"forty-two": "zweiundvierzig", "seven": "sieben", "nine": "neun", "": ""}


def test_sixteen_clients_share_batches(serve):
    server = serve("--max-delay", 20, "--workers", 2)
    texts = list(TEXTS)

    def twenty(client):
        return [server.predict(texts[(client + number) % 4]) for number in range(20)]

    with ThreadPoolExecutor(16) as threads:
        actual = list(threads.map(twenty, range(16)))
    for client, answers in enumerate(actual):
        for number, answer in enumerate(answers):
            assert (answer.status, answer.content["outputs"]["translation"]) == (
                200,
                [TEXTS[texts[(client + number) % 4]]],
            )
    assert server.metric("tfk_batch_texts_sum") == 320
    assert server.metric("tfk_batch_texts_count") < 160


def test_bad_text_fails_one_request(serve):
    """All wait for one batch: good texts, one that is too long, one whose settings the model
    refuses, and one of other settings.
    """
    server = serve("--max-delay", 3000, "--no-split-sentences")
    languages = {"source": "en", "target": "de"}
    infer = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["seven"]}]}
    requests = [
        ("/translate", {"q": "forty-two", **languages}),
        ("/translate", {"q": "one " * 100, **languages}),
        ("/translate", {"q": ["seven", "nine"], **languages}),
        ("/v2/models/numbers/infer", {**infer, "parameters": {"max_length": 300}}),
        ("/v2/models/numbers/infer", {**infer, "parameters": {"beam_size": 1}}),
    ]
    with ThreadPoolExecutor(len(requests)) as threads:
        good, long, several, refused, greedy = threads.map(
            lambda request: server.send(*request), requests
        )
    assert (good.status, good.content) == (200, {"translatedText": "zweiundvierzig"})
    assert (long.status, several.status, refused.status, greedy.status) == (422, 200, 422, 200)
    assert several.content == {"translatedText": ["sieben", "neun"]}
    assert "too" not in long.content["error"]
    assert "number 1: expected at most 32 tokens" in long.content["error"]
    assert "max_length: expected an integer" in refused.content["error"]
    assert server.metric("tfk_batch_texts_sum") == 6
    assert server.metric("tfk_batch_texts_count") == 3


def test_sigterm_drains_and_exits_0(serve):
    """The server cannot end before it has the second half of a body, whose text completes a batch
    of those that wait.
    """
    server = serve(
        "--max-delay", 10_000, "--max-batch", 9, "--body-timeout", 60, "--drain-delay", 0
    )
    body = json.dumps({"inputs": {"text": ["seven"]}}).encode()
    half = http.client.HTTPConnection("127.0.0.1", server.port)
    half.putrequest("POST", PREDICT)
    half.putheader("Content-Length", len(body))
    half.endheaders(body[:5])
    with ThreadPoolExecutor(8) as threads:
        accepted = [threads.submit(server.predict, text) for text in list(TEXTS) * 2]
        # Without that for the metric.
        server.wait_until(lambda: server.metric("tfk_requests_in_flight") == 9)
        kept = http.client.HTTPConnection("127.0.0.1", server.port)
        kept.request("GET", READY)
        assert json.loads(kept.getresponse().read()) == {"ready": True}
        server.begin_to_end(signal.SIGTERM)
        ready = server.send(READY)
        assert (ready.status, ready.content) == (503, {"ready": False})
        assert server.send(LIVE).status == 200
        late = server.predict("seven")
        assert (late.status, late.headers["retry-after"], late.headers["connection"]) == (
            503,
            "1",
            "close",
        )
        assert late.content["error"].endswith(
            "got a server that is shutting down; send the request again."
        )
        half.send(body[5:])
        assert json.loads(half.getresponse().read())["outputs"]["translation"] == ["sieben"]
        answers = [request.result() for request in accepted]
        half.close()
        kept.close()
    assert [answer.content["outputs"]["translation"] for answer in answers] == [
        [text] for text in list(TEXTS.values()) * 2
    ]
    assert server.process.wait(60) == 0
    assert server.lines()[-1]["event"] == "stopped"


def test_second_signal_ends_at_once(serve):
    """`stop` waits for a minute, the server by itself for ten."""
    server = serve("--drain-delay", 600)
    server.begin_to_end(signal.SIGINT)
    assert server.process.poll() is None
    assert server.stop([signal.SIGINT]) == 0


def test_moved_files_change_nothing(serve, exported, tmp_path):
    folder = tmp_path / "files"
    shutil.copytree(exported, folder)
    server = serve(
        "--source-language", "en", "--target-language", "de", file=folder / "translate.onnx"
    )
    languages = {"source": "en", "target": "de"}
    score = {"signature_name": "score", "inputs": {"source": ["seven"], "target": ["sieben"]}}
    requests = [
        ("/translate", {"q": "seven", **languages}),
        ("/translate", {"q": ["seven"] * 40, **languages}),
        ("/translate", {"q": "<b>seven</b> nine", "format": "html", **languages}),
        (PREDICT, score),
        ("/v2/models/numbers/generate_stream", {"text_input": "seven"}),
    ]
    folder.rename(tmp_path / "old")
    assert [server.send(*request).status for request in requests] == [200] * 5
    shutil.rmtree(tmp_path / "old")
    assert [server.send(*request).status for request in requests] == [200] * 5


@contextlib.contextmanager
def unread_server(model, *program):
    """Yield a server, after SIGTERM, with more lines in its log than a pipe holds, and its port."""
    command = [sys.executable, *program, "serve", model, "--port", 0, "--drain-delay", 0]
    with subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        url = json.loads(process.stdout.readline())["url"]
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        for _ in range(1000):
            connection.request("GET", "/health")
            assert connection.getresponse().read() == b'{"status":"ok"}'
        connection.close()
        process.terminate()
        yield process, connection.port


def test_unread_log_stops_nothing(exported):
    with unread_server(exported / "translate.onnx", "-m", "tfk_transformer") as (process, _):
        assert process.wait(60) == 0
        events = [json.loads(line)["event"] for line in process.stdout.read().splitlines()[:300]]
    assert events == ["request"] * 300


PATIENT = """
from tfk_transformer.apps.cli.main import main
from tfk_transformer.apps.server import monitoring
monitoring.LAST_SECONDS = 600
main()
"""


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60):
        return True
    return False


def test_last_lines_wait_for_reader(exported):
    """The reader begins when the server has ended to serve."""
    with unread_server(exported / "translate.onnx", "-c", PATIENT) as (process, port):
        end = time.monotonic() + 120
        while accepts(port):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert process.poll() is None
        events = [json.loads(line)["event"] for line in process.stdout.read().splitlines()]
        assert process.wait(60) == 0
    assert events == ["request"] * 1000 + ["stopped"]


def test_lines_wait_for_reader(monkeypatch):
    """Lines arrive in order. Those for which there is no room are counted."""
    reader, writer = os.pipe()
    lost = Counter("lost", "", registry=None)
    with open(reader, "rb") as lines, open(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setattr(monitoring, "MAX_LOG_LINES", 500)
        handler = monitoring.LogHandler(lost.inc)
        for number in range(2000):
            values = {"number": number}
            handler.handle(
                monitoring.LOG.makeRecord("", 20, "", 0, "e", (), None, extra={"values": values})
            )
        count = 2000 - int(lost.collect()[0].samples[0].value)
        actual = []
        while len(actual) < count:
            actual.append(json.loads(lines.readline())["number"])
            handler.flush()
    assert 500 < count < 2000
    assert actual == list(range(count))


def test_killed_server_reuses_port(serve):
    first = serve()
    assert first.predict("seven").status == 200
    first.process.kill()
    assert first.process.wait(60) == -signal.SIGKILL
    second = serve("--port", first.port)
    assert (second.port, second.predict("seven").content["outputs"]["translation"]) == (
        first.port,
        ["sieben"],
    )
