"""Requests that a model cannot process, streams that end early, and a reserved name."""

import asyncio
import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tfk_transformer.apps.server.protocols.open_inference import open_inference_routes
from tfk_transformer.apps.server.running import application
from tfk_transformer.apps.server.served_model import WAITING, ServedModel
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.runtime_environment import usable_processors
from tfk_transformer.text.languages import Languages
from tfk_transformer.text.results import Hypothesis, Translation


class Model:
    """Fails except for the text of the warm-up."""

    languages = Languages()

    def prepare_search(self, **options):
        return self

    def translate(self, sentences):
        assert set(sentences.texts) == {"a"}, "the text secret"
        return [Translation(text, [Hypothesis(text, 0.0)]) for text in sentences.texts]


async def post(app, path, content):
    """Send a request to an ASGI application, and return status and content of the answer."""
    messages = []

    async def receive():
        return {"type": "http.request", "body": json.dumps(content).encode()}

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    scope["departure"] = asyncio.get_running_loop().create_future()
    await app(scope, receive, send)
    start, body = messages
    return start["status"], json.loads(body["body"])


def answer_of(model, settings, path, content):
    """Serve a model for one request, and return status and content of the answer."""
    served = ServedModel(model, settings)
    app = application(served)
    answer = asyncio.run(post(app, path, content))
    served.stop()
    return answer


def test_model_error_has_status_500_in_json():
    request = {"q": "secret", "source": "en", "target": "de"}
    status, content = answer_of(Model(), ServerSettings(), "/translate", request)
    assert status == 500
    assert content["error"].startswith("server: expected a result of the model, got an error")
    assert "secret" not in content["error"]


class EndlessModel(Model):
    """Streams steps without text, and counts them."""

    steps = 0

    def stream_steps(self, text, **options):
        while True:
            self.steps += 1
            yield ""


async def departed_stream(served):
    """Begin a stream, and leave."""
    request = Request({"type": "http", "client": ("127.0.0.1", 1)})
    part = asyncio.ensure_future(anext(served.stream(request, "seven", {})))
    while not served.model.steps:
        await asyncio.sleep(0)
    part.cancel()
    with pytest.raises(asyncio.CancelledError):
        await part


async def late_stream(served):
    """Wait for the limit of a stream."""
    request = Request({"type": "http", "client": ("127.0.0.1", 1)})
    with pytest.raises(HTTPException, match="504: time: expected the whole stream within 0.1 s"):
        await anext(served.stream(request, "seven", {}))


@pytest.mark.parametrize("stream", [departed_stream, late_stream])
def test_ended_stream_ends_its_thread(stream):
    served = ServedModel(EndlessModel(), ServerSettings(timeout=0.1))
    asyncio.run(stream(served))
    served.stop()  # waits for the threads
    assert served.model.steps > 0


STREAMS = """
import itertools, sys
from tfk_transformer.apps.server.running import serve
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.export.runtime.opening import load

def stream_steps(text, **options):
    yield "a part"
    if text == "refused":
        raise ValueError("too long")
    if text == "failing":
        raise RuntimeError("secret")
    yield from itertools.repeat("another part")

model = load(sys.argv[1])
model.stream_steps = stream_steps
settings = ServerSettings(name="numbers", timeout=float(sys.argv[2]), drain_delay=0)
serve(model, settings, "127.0.0.1", 0)
"""


@pytest.mark.parametrize(
    ("text", "timeout", "status"),
    [("endless", 600, 499), ("endless", 1, 504), ("refused", 600, 422), ("failing", 600, 500)],
    ids=["client leaves", "late", "refused", "failing"],
)
def test_ended_streams_are_counted(exported, text, timeout, status):
    command = [sys.executable, "-c", STREAMS, exported / "translate.onnx", timeout]
    path = "/v2/models/numbers/generate_stream"
    counter = f'tfk_requests_total{{method="POST",path="{path}",status="{status}"}} 1.0'
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE) as process:
        address = json.loads(process.stdout.readline())["url"].removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=120)
        connection.request("POST", path, json.dumps({"text_input": text}))
        response = connection.getresponse()
        with contextlib.suppress(http.client.IncompleteRead):
            if status == 499:
                response.readline()
            else:
                response.read()
        response.close()
        connection.close()
        metrics = ""
        end = time.monotonic() + 120
        while f'path="{path}"' not in metrics:
            assert time.monotonic() < end
            connection.request("GET", "/metrics")
            metrics = connection.getresponse().read().decode()
            time.sleep(0.02)
        connection.close()
        process.terminate()
        lines = [*map(json.loads, process.stdout)]
    assert process.returncode == 0
    assert counter in metrics
    assert [line["status"] for line in lines if line.get("path") == path] == [status]


def test_clients_share_threads():
    """The functions of a client take turns, and leave threads to others."""
    served = ServedModel(Model(), ServerSettings())
    proceed = threading.Event()
    share = usable_processors()
    began = []

    def wait(number):
        began.append(number)
        proceed.wait()
        return number

    async def run():
        greedy, other = (Request({"type": "http", "client": (host, 1)}) for host in "ab")
        waiting = [asyncio.ensure_future(served.run(greedy, wait, n)) for n in range(share + 20)]
        assert await served.run(other, str, 7) == "7"
        count = len(began)
        proceed.set()
        return count, await asyncio.gather(*waiting)

    count, results = asyncio.run(run())
    served.stop()
    assert count <= share
    assert results == list(range(share + 20))


def test_thread_that_does_not_start_leaves_turn(monkeypatch):
    served = ServedModel(Model(), ServerSettings())

    def refuse(*arguments):
        raise RuntimeError("can't start new thread")

    async def run():
        request = Request({"type": "http", "client": ("a", 1)})
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="new thread"):
            patch.setattr(served._threads, "submit", refuse)
            await served.run(request, str, 7)
        return await asyncio.wait_for(served.run(request, str, 7), 60)

    assert asyncio.run(run()) == "7"
    served.stop()


def test_client_leaves_room_among_long_texts():
    served = ServedModel(Model(), ServerSettings(max_queue=8, max_texts=8))
    greedy, other = (Request({"type": "http", "client": (host, 1)}) for host in "ab")
    work = served.work({})
    with served.preparing(greedy, work, ["x"] * 4):
        with (
            pytest.raises(HTTPException, match="429: queue: expected at most 8 long texts"),
            served.preparing(greedy, work, ["x"]),
        ):
            pass
        with served.preparing(other, work, ["x"] * 4):
            pass
    with served.preparing(greedy, work, ["x"] * 8):
        pass
    served.stop()


def test_stages_of_a_request_share_its_time():
    """The wait of the second stage ends with the time that began with the first one."""
    served = ServedModel(Model(), ServerSettings(timeout=600))

    async def stages():
        scope = {"type": "http", "departure": asyncio.get_running_loop().create_future()}
        request = Request(scope)
        await served.answer(request, asyncio.sleep(0))
        scope["end"] -= 600
        with pytest.raises(HTTPException, match="504: time: expected an answer within 600 s"):
            await served.answer(request, asyncio.Event().wait())

    asyncio.run(stages())
    served.stop()


def test_stream_waits_while_batches_run():
    """The second step waits four times the processor time of the first one."""
    served = ServedModel(Model(), ServerSettings())
    used, ends = [], []

    def steps():
        begin = time.thread_time()
        while time.thread_time() < begin + 0.01:
            pass
        used.append(time.thread_time() - begin)
        ends.append(time.monotonic())
        yield "a"
        ends.append(time.monotonic())
        yield "b"

    served._batcher._running = 1
    assert list(served._give_way(steps())) == ["a", "b"]
    served.stop()
    assert ends[1] - ends[0] >= WAITING * used[0]


def test_model_named_stats_has_metadata_instead_of_statistics():
    served = ServedModel(Model(), ServerSettings(name="stats"))
    routes = open_inference_routes(served)
    served.stop()
    assert [route.name for route in routes if route.path == "/v2/models/stats"] == ["metadata"]


@pytest.mark.parametrize(
    "name", ["translate.onnx", pytest.param("saved_model", marks=pytest.mark.long)]
)
def test_long_text_has_score_nan(exported, name):
    settings = ServerSettings(name="numbers", split_sentences=False)
    request = {"inputs": {"text": ["seven", "one " * 500]}}
    model = load(exported / name)
    status, content = answer_of(model, settings, "/v1/models/numbers:predict", request)
    assert status == 200
    assert content["outputs"]["translation"] == ["sieben", ""]
    assert content["outputs"]["score"][1] == "NaN"
    assert content["outputs"]["score"][0] < 0
