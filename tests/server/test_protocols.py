"""Each protocol as its clients speak it."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from number_files import PARAGRAPH, TRANSLATED_PARAGRAPH

REPOSITORY = Path(__file__).parents[2]
GUIDE = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")
PREDICT = "/v1/models/numbers:predict"
LONG = "one " * 500


@pytest.fixture(scope="module", params=["translate.onnx", "saved_model"])
def any_server(request, serve, server):
    return server if request.param == "translate.onnx" else serve(file=request.param)


@pytest.fixture(scope="module")
def unsplit_server(serve):
    """A server whose model reads each text as one sentence."""
    languages = ["--source-language", "en", "--target-language", "de"]
    return serve("--no-split-sentences", *languages, "--drain-delay", 0)


def test_documented_requests_work(any_server, local_model):
    blocks = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)[:4]
    # The most that this model writes.
    blocks = [block.replace('"max_length": 256', '"max_length": 32') for block in blocks]
    columns, rows, settings, score = [any_server.send(PREDICT, block) for block in blocks]
    assert {answer.status for answer in (columns, rows, settings, score)} == {200}
    expected = local_model.translate(["forty-two", "seven"], n_best=2)
    outputs = columns.content["outputs"]
    assert outputs["translation"] == [t.text for t in expected] == ["zweiundvierzig", "sieben"]
    assert outputs["score"] == pytest.approx([t.score for t in expected], abs=1e-4)
    assert [row["translation"] for row in rows.content["predictions"]] == outputs["translation"]
    assert [row["score"] for row in rows.content["predictions"]] == pytest.approx(
        outputs["score"], abs=1e-5
    )
    hypotheses = settings.content["outputs"]
    assert hypotheses["translations"] == [[h.text for h in t.hypotheses] for t in expected]
    assert hypotheses["scores"] == [
        pytest.approx([h.score for h in t.hypotheses], abs=1e-4) for t in expected
    ]
    (pair,) = local_model.score_tokens(["forty-two"], ["zweiundvierzig"])
    scored = score.content["outputs"]
    assert scored["log_probability"] == [pytest.approx(pair.log_probability, abs=1e-4)]
    assert scored["tokens"] == [pair.tokens]
    assert scored["token_log_probs"] == [pytest.approx(pair.token_log_probs, abs=1e-4)]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_documented_commands_work(serve):
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    (command,) = [block for block in blocks if block.startswith("tfk-transformer serve ")]
    program, verb, model, *options = shlex.split(command.replace("\\\n", ""))
    assert model == "numbers-files/translate.onnx"
    server = serve(*options)
    (requests,) = [block for block in blocks if "curl --no-buffer" in block]
    done = subprocess.run(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            requests.replace(":8501", f":{server.port}").replace("curl ", "curl --silent --fail "),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        '{"translatedText":["zweiundvierzig","sieben"]}{"predictions":[{"translation":"zweiundvierzig"'
        in done.stdout
    )
    assert '"data":["zweiundvierzig","sieben"]' in done.stdout
    assert "data: {" in done.stdout


def test_paragraphs_in_all_protocols(any_server):
    expected = TRANSLATED_PARAGRAPH
    predicted = any_server.send(PREDICT, {"instances": [PARAGRAPH, "seven"]}).content
    assert [row["translation"] for row in predicted["predictions"]] == [expected, "sieben"]
    text = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [PARAGRAPH]}
    inferred = any_server.send("/v2/models/numbers/infer", {"inputs": [text]}).content
    assert inferred["outputs"][0]["data"] == [expected]
    request = {"q": [PARAGRAPH, ""], "source": "en", "target": "de"}
    assert any_server.send("/translate", request).content == {"translatedText": [expected, ""]}


def test_paragraphs_are_streamed(server):
    answer = server.send("/v2/models/numbers/generate_stream", {"text_input": PARAGRAPH})
    events = [json.loads(line[6:]) for line in answer.content.decode().splitlines() if line]
    assert "".join(event["text_output"] for event in events) == TRANSLATED_PARAGRAPH


def test_rows_may_name_their_inputs(server):
    answer = server.send(
        PREDICT,
        {
            "signature_name": "score",
            "instances": [{"source": "seven", "target": t} for t in ("sieben", "neun")],
        },
    )
    good, bad = answer.content["predictions"]
    assert set(good) == {"log_probability", "tokens", "token_log_probs"}
    assert good["log_probability"] > bad["log_probability"]
    assert (
        server.send(PREDICT, {"instances": [{"text": "seven"}]}).content["predictions"][0][
            "translation"
        ]
        == "sieben"
    )
    assert (
        server.send(PREDICT, {"instances": [{"b64": "c2V2ZW4="}]}).content["predictions"][0][
            "translation"
        ]
        == "sieben"
    )


def test_optional_settings_and_prefix(server, local_model):
    inputs = {"text": ["seven", "forty-two"], "prefix": ["neun"], "beam_size": 2}
    outputs = server.send(PREDICT, {"signature_name": "translate", "inputs": inputs}).content[
        "outputs"
    ]
    expected = local_model.translate(["seven", "forty-two"], prefixes=["neun", "neun"], beam_size=2)
    assert outputs["translations"] == [[t.text] for t in expected]
    inputs |= {"prefix": ["", "neun"]}
    outputs = server.send(PREDICT, {"signature_name": "translate", "inputs": inputs}).content[
        "outputs"
    ]
    assert outputs["translations"] == [["sieben"], [expected[1].text]]


def test_too_long_text_scores_nan(unsplit_server):
    answer = unsplit_server.predict("seven", LONG)
    assert answer.content["outputs"]["translation"] == ["sieben", ""]
    assert answer.content["outputs"]["score"][1] == "NaN"
    assert answer.content["outputs"]["score"][0] < 0


def test_saved_model_client_translates(unsplit_server):
    command = [
        sys.executable,
        REPOSITORY / "scripts" / "saved_model_client.py",
        unsplit_server.url + PREDICT,
        "seven",
        LONG,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == ["sieben", ""], done.stderr
    assert done.stdout.splitlines()[1] == "nan\t"


def test_tensorflow_serving_metadata(server, serve, exported):
    for path in ("/v1/models/numbers", "/v1/models/numbers/versions/1"):
        status = {
            "version": "1",
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
        assert server.send(path).content == {"model_version_status": [status]}
    metadata = server.send("/v1/models/numbers/metadata").content
    assert metadata["model_spec"] == {"name": "numbers", "signature_name": "", "version": "1"}
    actual = metadata["metadata"]["signature_def"]["signature_def"]
    assert set(actual) == {"serving_default", "translate", "score"}
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    assert actual["serving_default"]["inputs"]["text"] == {
        "dtype": "DT_STRING",
        "tensor_shape": shape,
        "name": "serving_default_text:0",
    }
    assert actual["translate"]["inputs"]["beam_size"]["tensor_shape"] == {
        "dim": [],
        "unknown_rank": False,
    }
    assert (
        server.send("/v1/models/numbers/versions/1:predict", {"instances": ["seven"]}).status == 200
    )


def test_libretranslate_translates(server, local_model):
    languages = {"source": "en", "target": "de"}
    assert server.send("/translate", {"q": "seven", **languages, "format": "text"}).content == {
        "translatedText": "sieben"
    }
    assert server.send("/translate", {"q": ["seven", ""], **languages}).content == {
        "translatedText": ["sieben", ""]
    }
    assert server.send("/translate", {"q": "seven", "source": "auto", "target": "de"}).content == {
        "translatedText": "sieben",
        "detectedLanguage": {"confidence": 100, "language": "en"},
    }
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert server.send("/translate", "q=forty-two&source=en&target=de", headers=form).content == {
        "translatedText": "zweiundvierzig"
    }
    expected = [h.text for h in local_model.translate(["seven"], n_best=3)[0].hypotheses]
    answer = server.send("/translate", {"q": "seven", **languages, "alternatives": 2})
    assert answer.content == {"translatedText": expected[0], "alternatives": expected[1:]}
    assert server.send("/languages").content == [
        {"code": "en", "name": "en", "targets": ["de"]},
        {"code": "de", "name": "de", "targets": []},
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"source": "fr"},
            "source: expected en, the model's language, got fr; GET /languages lists the "
            "languages.",
        ),
        ({"target": "fr"}, "target: expected de, .*"),
        (
            {"format": "markdown"},
            "format: expected text or html, got markdown; correct it.",
        ),
        ({"alternatives": -1}, "alternatives: expected a number from 0 to 15, got -1; correct it."),
    ],
)
def test_libretranslate_errors(server, change, message):
    answer = server.send("/translate", {"q": "seven", "source": "en", "target": "de", **change})
    assert answer.status == 422
    assert re.fullmatch(message, answer.content["error"]), answer.content


def test_open_inference_describes_model(server):
    assert server.send("/v2").content["extensions"] == [
        "generate",
        "binary_tensor_data",
        "model_configuration",
    ]
    assert server.send("/v2/health/live").content == {"live": True}
    assert server.send("/v2/health/ready").content == {"ready": True}
    assert server.send("/v2/models/numbers/ready").content == {"name": "numbers", "ready": True}
    model = server.send("/v2/models/numbers").content
    assert (model["name"], model["versions"]) == ("numbers", ["1"])
    assert [tensor["name"] for tensor in model["inputs"]] == ["text", "prefix"]
    assert [(tensor["name"], tensor["datatype"]) for tensor in model["outputs"]] == [
        ("translation", "BYTES"),
        ("score", "FP32"),
    ]


def test_open_inference_translates(server, local_model):
    tensor = {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["forty-two", "seven"]}
    answer = server.send("/v2/models/numbers/infer", {"id": "7", "inputs": [tensor]}).content
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("numbers", "1", "7")
    text, score = answer["outputs"]
    assert text == {
        "name": "translation",
        "datatype": "BYTES",
        "shape": [2],
        "data": ["zweiundvierzig", "sieben"],
    }
    assert (score["datatype"], score["shape"]) == ("FP32", [2])
    nested = {**tensor, "shape": [2, 1], "data": [["forty-two"], ["seven"]]}
    request = {
        "inputs": [nested],
        "outputs": [{"name": "translation"}],
        "parameters": {"n_best": 2, "beam_size": 3},
    }
    (text,) = server.send("/v2/models/numbers/infer", request).content["outputs"]
    expected = local_model.translate(["forty-two", "seven"], n_best=2, beam_size=3)
    assert text["shape"] == [2, 2]
    assert text["data"] == [h.text for t in expected for h in t.hypotheses]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"shape": [3]},
            (
                r"text: expected the shape \[N\] or \[N, 1\] and N texts, got \[3\] and 1 "
                r"texts; correct shape or data."
            ),
        ),
        ({"shape": []}, "text: expected the shape .*"),
        (
            {"datatype": "FP32"},
            (
                "body: expected the fields that /docs shows, got errors .inputs.0.datatype: Input "
                "should be 'BYTES'.*"
            ),
        ),
        ({"name": "texts"}, "body: .*inputs.0.name: Input should be 'text' or 'prefix'.*"),
        (
            {"name": "prefix"},
            (
                "inputs: expected text, and optionally prefix with as many items, got prefix with "
                "1 items; correct the inputs."
            ),
        ),
        ({"data": [1]}, "body: .*inputs.0.data.0.*"),
    ],
)
def test_open_inference_errors(server, change, message):
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["seven"], **change}
    answer = server.send("/v2/models/numbers/infer", {"inputs": [tensor]})
    assert answer.status == 422
    assert re.fullmatch(message, answer.content["error"]), answer.content


def test_a_text_is_streamed_as_events(any_server, local_model):
    text = "one hundred ninety-nine"
    answer = any_server.send("/v2/models/numbers/generate_stream", {"text_input": text})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.content.decode().split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    parts = [json.loads(event.removeprefix("data: ")) for event in events]
    assert len(parts) > 1
    assert {part["model_name"] for part in parts} == {"numbers"}
    (expected,) = local_model.translate([text], beam_size=1)
    assert "".join(part["text_output"] for part in parts) == expected.text
    assert (
        any_server.send("/v2/models/numbers/generate", {"text_input": "seven"}).content[
            "text_output"
        ]
        == "sieben"
    )
    assert any_server.send("/v2/models/numbers/generate_stream", {"text_input": ""}).content == b""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"text_input": "seven", "parameters": {"beam_size": 2}},
            "beam_size: expected 1, got 2; .*",
        ),
        ({"text_input": "seven", "parameters": {"beams": 2}}, ".*unknown name 'beams'.*"),
        ({"text_input": "a\0b"}, "texts: expected text, got the character U.0000 .*"),
    ],
)
def test_stream_refuses_bad_requests(server, body, message):
    answer = server.send("/v2/models/numbers/generate_stream", body)
    assert answer.status == 422
    assert re.fullmatch(message, answer.content["error"]), answer.content


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/translate",
            {"q": [LONG, "seven"], "source": "en", "target": "de"},
            "texts: number 1: expected at most 32 tokens, got more .*; split it into sentences.",
        ),
        (
            "/v2/models/numbers/infer",
            {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [LONG]}]},
            "texts: number 1: expected at most 32 tokens, .*",
        ),
        (
            "/v2/models/numbers/generate_stream",
            {"text_input": LONG},
            "text: expected at most 32 tokens, got .*; split it into sentences.",
        ),
    ],
)
def test_too_long_text_is_refused(unsplit_server, path, body, message):
    answer = unsplit_server.send(path, body)
    assert answer.status == 422
    assert re.fullmatch(message, answer.content["error"]), answer.content
