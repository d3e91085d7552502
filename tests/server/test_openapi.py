"""Requests made from the server's own description of its paths."""

import subprocess
import sys

import pytest


def test_openapi_names_every_path(server):
    page = server.send("/openapi.json").content
    document = server.send("/docs").content.decode()
    assert all(f" {path}</code></h3>" in document for path in page["paths"])
    assert 'href="#InputTensor"' in document
    assert 'id="InputTensor"' in document
    model = "/v2/models/numbers"
    assert {
        "/translate",
        "/detect",
        "/languages",
        "/frontend/settings",
        "/health",
        "/metrics",
        "/v1/models/numbers:predict",
        "/v1/models/numbers",
        "/v1/models/numbers/metadata",
        *(f"/v2{path}" for path in ("", "/health/live", "/health/ready")),
        *(f"{model}{path}" for path in ("", "/ready", "/infer", "/generate", "/generate_stream")),
    } <= set(page["paths"])
    for path, methods in page["paths"].items():
        for operation in methods.values():
            assert operation["summary"] and operation["description"], path
    body = page["paths"][f"{model}/infer"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    assert body["properties"]["inputs"]["items"] == {"$ref": "#/components/schemas/InputTensor"}
    assert page["components"]["schemas"]["InputTensor"]["required"] == [
        "name",
        "shape",
        "datatype",
        "data",
    ]


@pytest.mark.parametrize(
    ("phases", "count"),
    [("fuzzing", 2), pytest.param("examples,coverage,fuzzing", 5, marks=pytest.mark.long)],
)
def test_answers_conform_to_openapi(server, tmp_path, phases, count):
    """Schemathesis sends requests that fit the page and others, and checks status, type and form of
    the answers.
    """
    pytest.importorskip("schemathesis")
    run = "from schemathesis.cli import schemathesis; schemathesis()"
    checks = (
        "not_a_server_error,status_code_conformance,content_type_conformance,"
        "response_schema_conformance,unsupported_method"
    )
    options = [
        "--checks",
        checks,
        "--max-examples",
        str(count),
        "--seed",
        "1",
        "--phases",
        phases,
        "--request-timeout",
        "30",
    ]
    command = [sys.executable, "-c", run, "run", f"{server.url}/openapi.json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    answered = sum(request["status"] == 200 for request in server.requests())
    assert answered > (50 if "coverage" in phases else 10)
