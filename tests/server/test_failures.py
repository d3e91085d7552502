"""Applications in this process: requests that a model cannot process, and a reserved name."""

import asyncio
import json

import pytest

from tfk_transformer.apps.server.protocols.open_inference import open_inference_routes
from tfk_transformer.apps.server.running import application
from tfk_transformer.apps.server.served_model import ServedModel
from tfk_transformer.apps.server.settings import ServerSettings
from tfk_transformer.export.runtime.opening import load
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
