"""generate.onnx in Node and in a browser, with the programs that users get."""

import http.server
import json
import os
import queue
import re
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.export.functions import traced
from tfk_transformer.export.parity import probe_ids
from tfk_transformer.export.signatures import GENERATE

SCRIPTS = Path(__file__).parents[2] / "scripts"
TEXTS = ["forty-two", "one hundred ninety-nine", "seven", "no number at all", "eighty"]
SETTINGS = [
    {},
    {"beam_size": 1},
    {"beam_size": 3, "n_best": 3, "length_penalty": 0.25},
    {"n_best": 2, "coverage_penalty": 0.4, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "min_length": 3, "max_length": 7},
    {"n_best": 4, "temperature": 1.3, "top_k": 20, "top_p": 0.9, "seed": 7},
]
INSTALL = f"npm ci --ignore-scripts --prefix {SCRIPTS.name}"


def needs_package(name):
    return pytest.mark.skipif(not (SCRIPTS / "node_modules" / name).is_dir(), reason=f"{name} is not installed: {INSTALL}")


@pytest.fixture(scope="module")
def rows(translator):
    ids = probe_ids(TEXTS, translator.source_tokenizer, 32)
    return [row[row > 0].tolist() for row in ids]


@pytest.fixture(scope="module")
def expected(translator):
    """What Keras makes of the rows under each of SETTINGS: a list of (ids, score) for each row, padding left out."""
    generate = traced(translator.functions, GENERATE)
    source = probe_ids(TEXTS, translator.source_tokenizer, 32)
    results = []
    for settings in SETTINGS:
        found = generate(source, np.zeros((1, 0), "int32"), *SearchSettings(**settings).model_dump().values())
        ids, scores = found["ids"].numpy(), found["scores"].numpy()
        results.append(
            [[(row[row > 0].tolist(), score) for row, score in zip(*pair, strict=True)] for pair in zip(ids, scores, strict=True)]
        )
    return results


def check(found, expected):
    """Compare rows of (ids, score) pairs: every id, and scores to 1e-4."""
    assert [[ids for ids, _ in row] for row in found] == [[ids for ids, _ in row] for row in expected]
    flat, wanted = ([score for row in rows for _, score in row] for rows in (found, expected))
    np.testing.assert_allclose(flat, wanted, atol=1e-4)


def node(path, rows, settings):
    words = [",".join(map(str, row)) for row in rows] + [f"{name}={value}" for name, value in settings.items()]
    return subprocess.run(["node", SCRIPTS / "onnx_generate.mjs", path, *words], capture_output=True, text=True)


@pytest.mark.skipif(not shutil.which("node"), reason="Node is not installed")
@needs_package("onnxruntime-node")
class TestNode:
    @pytest.mark.parametrize("number", range(len(SETTINGS)))
    def test_it_gives_the_ids_and_scores_of_keras(self, exported, rows, expected, number):
        done = node(exported / "generate.onnx", rows, SETTINGS[number])
        assert (done.returncode, done.stderr) == (0, "")
        found = [[(hypothesis["ids"], hypothesis["score"]) for hypothesis in json.loads(line)] for line in done.stdout.splitlines()]
        check(found, expected[number])

    @pytest.mark.parametrize(
        ("rows", "settings", "message"),
        [([[4, 2]], {"beams": 2}, "settings: expected some of beam_size, .*, got beams"), ([["a"]], {}, "expected numbers, got NaN")],
    )
    def test_wrong_input_is_said(self, exported, rows, settings, message):
        done = node(exported / "generate.onnx", rows, settings)
        assert done.returncode == 1 and done.stdout == ""
        assert re.search(message, done.stderr)


# Drives the page as a person does: chooses the file, types, sets, presses the button and reads the table.
DRIVER = """<!doctype html><iframe src="onnx_web.html" width="900" height="900"></iframe><script type="module">
const page = document.querySelector("iframe");
const post = (content) => fetch("results", { method: "POST", body: JSON.stringify(content) });
addEventListener("unhandledrejection", (event) => post({ error: String(event.reason) }));
await new Promise((loaded) => { page.onload = loaded; });
const find = (selector) => page.contentDocument.querySelector(selector);
const enabled = async () => { while (find("#run").disabled) await new Promise((next) => setTimeout(next, 20)); };
const { rows, settings } = await (await fetch("task.json")).json();
const given = new DataTransfer();
given.items.add(new File([await (await fetch("generate.onnx")).blob()], "generate.onnx"));
find("#file").files = given.files;
find("#file").onchange();
await enabled();
const defaults = [...page.contentDocument.querySelectorAll("#settings input")].map((input) => [input.name, input.value]);
find("#rows").value = rows.map((row) => row.join(" ")).join("\\n");
const results = [];
for (const chosen of settings) {
  for (const [name, value] of defaults) find(`input[name=${name}]`).value = chosen[name] ?? value;
  find("#run").click();
  await enabled();
  const table = [...find("#found").tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));
  results.push({ status: find("#status").value, table });
}
await post({ defaults, results });
</script>"""


@pytest.fixture(scope="module")
def served(exported, rows):
    """A server of the scripts' folder, the model, the task and the driver; gives its address and the queue of what is posted."""
    made = {
        "/driver.html": ("text/html", DRIVER.encode()),
        "/task.json": ("application/json", json.dumps({"rows": rows, "settings": SETTINGS}).encode()),
        "/generate.onnx": ("application/octet-stream", (exported / "generate.onnx").read_bytes()),
    }
    posted = queue.Queue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=SCRIPTS)

        def do_GET(self):
            if self.path not in made:
                return super().do_GET()
            kind, content = made[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self):
            posted.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", posted
        server.shutdown()


def browser():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(not browser(), reason="Chromium is not installed")
@needs_package("onnxruntime-web")
def test_the_page_gives_the_ids_and_scores_of_keras(served, expected, tmp_path):
    address, posted = served
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={tmp_path}"]
    # A page must not stay blank for /dev/shm, which is small in containers.
    command += ["--disable-dev-shm-usage", f"{address}/driver.html"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(tmp_path)}
    ) as running:
        try:
            answer = posted.get(timeout=120)
        finally:
            running.terminate()
    assert "error" not in answer, answer
    assert {name: float(value) for name, value in answer["defaults"]} == SearchSettings(max_length=32).model_dump()
    for result, wanted in zip(answer["results"], expected, strict=True):
        assert result["status"].startswith(f"{len(TEXTS)} sentences in ")
        found = [[] for _ in TEXTS]
        for line, score, ids in result["table"]:
            found[int(line) - 1].append(([int(i) for i in ids.split()], float(score)))
        check(found, wanted)
