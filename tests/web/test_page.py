"""The page in Chromium: `visit.mjs` types, chooses and reads as a person does, and the tests
compare what it saw with Python.
"""

import http.server
import os
import re
import threading
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from web_needs import browser, needs, needs_node, visit

from tfk_transformer.config.search_settings import search_defaults
from tfk_transformer.datasets.numbers import spell
from tfk_transformer.plots import attention_of, attention_page

SHOWN = ["forty-two", "one hundred ninety-nine"]
# Five sentences in two lines. The vocabulary has no full stops, question marks and emoji.
PARAGRAPH = "forty-two. seven! Is it nine?  eight 😀\n\none hundred ninety-nine."
DOWN = "/-down"  # asks the server to answer nothing any more
SERVICE_WORKER = "/service-worker.js"
ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
PHONE = 360


class StaticServer(http.server.ThreadingHTTPServer):
    """Any static web server, which can go down."""

    is_down = False
    headers: dict[str, str] = {}
    held = None  # an Event: until it is set, the script of the service worker is not answered


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path == DOWN:
            self.server.is_down = True
            self.send_response(204)
            self.end_headers()
        elif self.server.held and self.path == SERVICE_WORKER:
            self.server.held.wait()
        elif not self.server.is_down:
            super().do_GET()

    def end_headers(self):
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def serve(web):
    """A function (headers, held) -> the address of a server of the folder."""
    servers = []

    def start(headers, held=None):
        server = StaticServer(("127.0.0.1", 0), partial(Handler, directory=web))
        server.headers, server.held = headers, held
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def texts():
    return [spell(number, "en") for number in range(200)]


@pytest.fixture(scope="module")
def seen(web, serve, texts, translator, tmp_path_factory):
    """What one visit of the page saw. Pictures of it are kept where TFK_TRANSFORMER_PICTURES
    says.
    """
    pictures = os.environ.get("TFK_TRANSFORMER_PICTURES")
    if pictures:
        Path(pictures).mkdir(parents=True, exist_ok=True)
    home = tmp_path_factory.mktemp("browser")
    (home / "explorer.html").write_text(
        attention_page(attention_of(translator, SHOWN[0])), encoding="utf-8"
    )
    held = threading.Event()
    task = {
        "address": serve({}),
        "isolated": serve(ISOLATION),
        "held": serve({}, held),
        "file": (web / "index.html").as_uri(),
        "explorer": (home / "explorer.html").as_uri(),
        "texts": texts,
        "shown": SHOWN,
        "paragraph": PARAGRAPH,
        "down": DOWN,
        "pictures": pictures,
    }
    try:
        return visit("visit.mjs", task, home)
    finally:
        held.set()


pytestmark = [
    pytest.mark.skipif(not browser(), reason="Chromium is not installed"),
    needs_node(),
    needs("onnxruntime-web", "sentencepiece-js", "playwright-core", "axe-core"),
]


def test_page_translates_like_python(seen, translator, texts):
    expected = translator.translate(texts, beam_size=1)
    assert [line[0][0] for line in seen["greedy"]] == [translation.text for translation in expected]
    np.testing.assert_allclose(
        [line[0][1] for line in seen["greedy"]], [each.score for each in expected], atol=2e-4
    )


def test_page_n_best_matches_python(seen, translator):
    expected = translator.translate(SHOWN, n_best=3)
    assert [[text for text, _ in line] for line in seen["best"]] == [
        [each.text for each in line.hypotheses] for line in expected
    ]
    scores = [[each.score for each in line.hypotheses] for line in expected]
    np.testing.assert_allclose(
        [[score for _, score in line] for line in seen["best"]], scores, atol=2e-4
    )
    assert re.fullmatch(r"\d+ ms for 2 sentences, on one thread", seen["time"])


def test_page_translates_a_paragraph(seen, translator):
    expected = translator.translate([PARAGRAPH])[0]
    assert len(expected.sentences) == 5
    assert seen["paragraph"]["whole"] == expected.text
    assert "\n\n" in expected.text
    assert "😀" in expected.text
    assert [[text for text, _ in sentence] for sentence in seen["paragraph"]["sentences"]] == [
        [sentence.text] for sentence in expected.sentences
    ]
    kept = f"{expected.kept_characters} of the characters are unknown"
    assert f"for 5 sentences, on one thread; {kept}" in seen["paragraph"]["time"]


def test_page_attention_matches_python(seen, translator):
    best = translator.translate(SHOWN[:1], attention=True)[0].hypotheses[0]
    layers, heads = best.attention.shape[:2]
    assert len(seen["attention"]) == layers * (heads + 1)
    for name, actual in seen["attention"].items():
        layer, head = name.split()
        expected = (
            best.attention[int(layer)].mean(axis=0)
            if head == "mean"
            else best.attention[int(layer), int(head)]
        )
        weights = np.array(actual["weights"])
        np.testing.assert_allclose(weights, expected, atol=2e-4)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=5e-5 * weights.shape[1])
        spoken = [[int(cell.removesuffix(" %")) for cell in row] for row in actual["spoken"]]
        np.testing.assert_allclose(spoken, 100 * weights, atol=0.51)

    def readable(pieces):
        return ["end" if piece == "</s>" else piece.replace("▁", "") or "␣" for piece in pieces]

    assert (actual["rows"], actual["columns"]) == (
        readable(best.tokens),
        readable(best.source_tokens),
    )


def test_page_alignment_has_all_words(seen, translator):
    assert (
        " ".join(word for word, _ in seen["alignment"]) == translator.translate(SHOWN[:1])[0].text
    )
    assert all(
        re.fullmatch(r"\S+ \d+ %", link) and link.split()[0] in SHOWN[0].split()
        for _, link in seen["alignment"]
    )
    assert seen["pressed"] == [seen["alignment"][0][0]]


def test_panes_name_the_languages(seen):
    assert seen["languages"] == ["English", "en", "German", "de"]


def test_panes_are_side_by_side_on_a_desktop(seen):
    source, target = seen["panes"]["desktop"]
    assert source["right"] < target["left"]
    assert (source["top"], source["height"]) == (target["top"], target["height"])
    source, target = seen["panes"]["phone"]
    assert source["bottom"] < target["top"]
    assert source["left"] == target["left"]


def test_page_copies_the_translation(seen, translator):
    assert seen["copied"] == translator.translate([PARAGRAPH])[0].text


def test_page_explains_the_settings(seen):
    assert set(seen["help"]) == set(search_defaults(32).as_dict())
    assert seen["help"]["beam_size"].startswith("Number of open hypotheses for each sentence;")
    assert seen["help"]["beam_size"].endswith(" Default: 4.")


def test_page_settings_match_defaults(seen):
    assert seen["settings"] == search_defaults(32).as_dict()
    assert seen["failure"] == "n_best: expected at most beam_size, got n_best 9 and beam_size 4."


def test_card_describes_the_model(seen, translator):
    assert seen["card"]["parameters"] == f"{translator.model.count_params():,}"
    known = {
        "origin": "numbers",
        "license": "apache-2.0",
        "languages": "English → German",
        "validation accuracy": "0.875",
    }
    assert {**seen["card"], **known, "weights": "32-bit floats"} == seen["card"]
    assert "epoch" not in seen["card"]
    assert seen["card"]["one input"].startswith("a text of any length; its sentences are")


def test_title_names_the_languages(seen):
    assert seen["title"] == "Translator from English to German"


def test_page_works_offline(seen):
    assert seen["offline"] == [line[:1] for line in seen["best"]]


def test_page_without_service_worker(seen):
    assert seen["held"] == seen["offline"]


def test_isolated_page_uses_threads(seen):
    assert seen["threaded"] == seen["offline"]
    count = min(4, os.cpu_count())
    assert seen["threads"].endswith("on one thread" if count == 1 else f"on {count} threads")


def test_axe_reports_no_problems(seen):
    """Neither on the page nor on the one that `plot attention` writes."""
    assert seen["axe"] == seen["explorer"] == {"light": [], "dark": []}
    assert seen["paragraph"]["axe"] == []


def test_nothing_is_wider_than_a_phone(seen):
    content, window = seen["widths"]
    assert content <= window == PHONE


def test_page_asks_no_other_host(seen):
    assert {urlsplit(address).hostname or "" for address in seen["requests"]} <= {"127.0.0.1", ""}
    assert len(seen["requests"]) > 20
    assert seen["complaints"] == []


def test_keyboard_starts_at_the_text(seen):
    assert seen["focused"] == "text"
    assert seen["loading"].startswith(("Loading the model", "Starting the model"))


def test_page_from_disk_gives_advice(seen):
    assert "opened from the disk" in seen["file"]
    assert "python -m http.server" in seen["file"]
    assert "missing" not in seen["file"]
