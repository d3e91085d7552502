"""LibreTranslate's clients, as they send their requests; monitors, websites, proxies, browsers."""

import html
import re
import shlex
import socket
from pathlib import Path

import pytest

MASTODON = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
LANGUAGES = {"source": "en", "target": "de"}
ORIGIN = "https://pages.example"
POST = '<p>seven <a href="https://pages.example/@a" class="u-url">forty-two</a></p>'
SAVED_FILE = Path(__file__).parents[1] / "saved_files" / "translate.onnx"  # without languages
BOUNDARY = "----WebKitFormBoundary7MA4YWxk"


def multipart(*fields, end="--"):
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields
    ]
    return f"{''.join(parts)}--{BOUNDARY}{end}\r\n"


def send_form(server, body, path="/translate"):
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return server.send(path, body, headers=headers)


@pytest.fixture(scope="module")
def published(serve):
    """A server with an API key, behind a proxy, for the pages of a website."""
    options = ["--allow-origin", ORIGIN, "--root-path", "/mt", "--drain-delay", 0]
    return serve(*options, environment={"TFK_TRANSFORMER_API_KEY": "s3cret-key"})


def test_languages_are_the_models(published):
    assert [language["code"] for language in published.send("/languages").content] == ["en", "de"]
    assert published.send("/frontend/settings").content["language"]["source"]["code"] == "en"
    key = {"api_key": "s3cret-key"}
    assert published.send("/detect", {"q": "Hallo", **key}).content[0]["language"] == "en"
    refused = published.send("/translate", {"q": "a", "source": "de", "target": "en", **key})
    assert refused.status == 422
    assert "source: expected en" in refused.content["error"]


def test_options_name_other_languages(serve):
    options = ["--source-language", "fr", "--target-language", "deu_Latn", "--drain-delay", 0]
    server = serve(*options)
    codes = [language["code"] for language in server.send("/languages").content]
    assert codes == ["fr", "deu_Latn"]


def test_long_requests_equal_short_ones(server):
    body = {"q": ["seven " + "😀" * 4000] * 6, "source": "en", "target": "de"}
    texts = server.send("/translate", body).content["translatedText"]
    alone = server.send("/translate", {**body, "q": body["q"][0]}).content["translatedText"]
    assert texts == [alone] * 6


def test_unknown_languages_are_undetermined(serve):
    server = serve("--drain-delay", 0, file=SAVED_FILE)
    assert server.send("/languages").content[0]["code"] == "und"
    answer = server.send("/detect", {"q": "Hallo"})
    assert answer.content == [{"confidence": 0, "language": "und"}]


def test_detect_names_source_language(server, published):
    expected = [{"confidence": 100, "language": "en"}]
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert server.send("/detect", "q=Hallo+Welt", headers=form).content == expected
    assert server.send("/detect", {"q": "Hallo", "api_key": None}).content == expected
    assert send_form(server, multipart(("q", "Hallo")), "/detect").content == expected
    assert server.send("/detect", {"q": "seven\0"}).status == 422


def test_frontend_settings_need_no_key(server, published):
    settings = server.send("/frontend/settings").content
    assert settings["charLimit"] == 5000
    assert settings["keyRequired"] is False
    assert settings["language"]["target"] == {"code": "de", "name": "de"}
    settings = published.send("/frontend/settings").content
    assert settings["apiKeys"] is settings["keyRequired"] is True


def test_mastodon_posts_keep_markup(server, local_model):
    texts = [POST, "<p>seven</p><p>forty-two &amp; seven</p>", ""]
    body = {"q": texts, "source": "auto", "target": "de", "format": "html", "api_key": None}
    answer = server.send("/translate", body, headers=MASTODON)
    expected = [local_model.translate_document(text, "html").text for text in texts]
    assert answer.content["translatedText"] == expected
    assert '<a href="https://pages.example/@a" class="u-url">' in expected[0]
    detected = {"confidence": 100, "language": "en"}
    assert answer.content["detectedLanguage"] == [detected] * 3


def test_weblate_strings_are_translated(server):
    body = {"api_key": "", "q": ["seven", "forty-two"], **LANGUAGES}
    assert server.send(
        "/translate", body, headers={"Content-Type": "application/json"}
    ).content == {"translatedText": ["sieben", "zweiundvierzig"]}


@pytest.mark.parametrize("count", [1, "1"])
def test_browser_requests_are_answered(server, count):
    body = {"q": "seven", "source": "auto", "target": "de", "format": None, "alternatives": count}
    content = server.send("/translate", body).content
    assert content.pop("alternatives")
    assert content == {
        "translatedText": "sieben",
        "detectedLanguage": {"confidence": 100, "language": "en"},
    }
    content = server.send("/translate", {**body, "format": "html"}).content
    assert (content["translatedText"], content["alternatives"]) == ("sieben", [])


@pytest.mark.parametrize("count", ["many", "-1", "1.5", 16])
def test_wrong_alternatives_are_refused(server, count):
    answer = server.send("/translate", {"q": "seven", **LANGUAGES, "alternatives": count})
    assert answer.status == 422
    assert answer.content["error"] == (
        f"alternatives: expected a number from 0 to 15, got {count}; correct it."
    )


def test_multipart_forms_are_translated(server):
    fields = [("source", "en"), ("target", "de"), ("alternatives", "1"), ("api_key", "")]
    content = send_form(server, multipart(("q", "seven"), *fields)).content
    assert content["translatedText"] == "sieben"
    assert content["alternatives"]
    content = send_form(server, multipart(("q", "seven"), ("q", "nine"), *fields)).content
    assert content["translatedText"] == ["sieben", "neun"]


@pytest.mark.parametrize(
    "body",
    [
        "seven",
        multipart(("q", "seven"), end=""),
        multipart(("q", "seven")).replace("name=", "nome="),
        multipart(("q", "seven")).replace("\r\n\r\n", "\r\n"),
        multipart(("q", "seven")).encode().replace(b"seven", b"\xff"),
        multipart(*[("q", "seven")] * 1001),
        multipart(("q" * 2000, "seven")),
    ],
)
def test_malformed_multipart_is_refused(server, body):
    answer = send_form(server, body)
    assert answer.status == 400
    assert answer.content["error"].startswith("body: expected a form")


def test_html_has_the_limits_of_texts(server):
    html_request = {**LANGUAGES, "format": "html"}
    answer = server.send("/translate", {"q": "<p>seven</p>" * 500, **html_request})
    assert answer.status == 422
    assert "at most 5000 characters" in answer.content["error"]
    answer = server.send("/translate", {"q": ["seven"] * 257, **html_request})
    assert answer.status == 422
    assert "at most 256" in answer.content["error"]
    long = server.send("/translate", {"q": f"<p>{'seven ' * 300}</p>", **html_request})
    assert long.status == 200
    assert long.content["translatedText"].startswith("<p>sieben")


def test_late_html_gets_504(serve):
    server = serve("--timeout", 0.3, "--max-delay", 10_000)
    answer = server.send("/translate", {"q": "<p>seven</p>", **LANGUAGES, "format": "html"})
    assert (answer.status, answer.headers["retry-after"]) == (504, "5")


def test_html_names_a_missing_package(serve, tmp_path):
    (tmp_path / "html5lib.py").write_text("raise ModuleNotFoundError(name=__name__)")
    server = serve(environment={"PYTHONPATH": tmp_path})
    answer = server.send("/translate", {"q": "seven", **LANGUAGES, "format": "html"})
    assert answer.status == 422
    assert answer.content["error"] == (
        "format: expected text, got html, which needs tfk-transformer[documents] on the server."
    )


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_compressed_body_is_refused(server, encoding):
    answer = server.send("/translate", b"\x1f\x8b", headers={"Content-Encoding": encoding})
    assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
    assert answer.content["error"] == (
        f"Content-Encoding: expected none, got {encoding}; send the body uncompressed."
    )


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/docs",
        "/frontend/settings",
        "/health",
        "/languages",
        "/metrics",
        "/openapi.json",
        "/v1/models/numbers",
        "/v2/health/live",
        "/v2/health/ready",
    ],
)
def test_monitors_may_send_head(server, path):
    head = server.send(path, method="HEAD")
    assert (head.status, head.content) == (200, b"")
    assert head.headers["content-type"] == server.send(path).headers["content-type"]


def test_health_is_ok(published):
    assert published.send("/health").content == {"status": "ok"}


def test_pages_of_a_website_are_allowed(published, server):
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}
    allowed = published.send("/translate", method="OPTIONS", headers={**ask, "Origin": ORIGIN})
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert "x-api-key" in allowed.headers["access-control-allow-headers"].lower()
    refused = published.predict("seven", headers={"Origin": ORIGIN})
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, ORIGIN)
    other = {**ask, "Origin": "https://other.example"}
    for answer in (
        published.send("/translate", method="OPTIONS", headers=other),
        published.predict("seven", headers=other),
        server.predict("seven", headers=other),
    ):
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("root", ["", "/mt"])
def test_proxy_may_keep_root_path(published, root):
    key = {"X-API-Key": "s3cret-key"}
    body = {"instances": ["seven"]}
    assert published.send(f"{root}/v1/models/numbers:predict", body, headers=key).status == 200
    assert published.send(f"{root}/v1/models/numbers:predict", body).status == 401
    assert published.requests()[-1]["path"] == "/v1/models/numbers:predict"
    assert published.send(f"{root}/openapi.json").content["servers"] == [{"url": "/mt"}]
    assert b'href="/mt/docs"' in published.send(root or "/").content


def test_root_path_is_a_whole_part(published):
    assert published.send("/mtx/health", headers={"X-API-Key": "s3cret-key"}).status == 404


def test_wrong_key_precedes_the_body(published):
    """The body never arrives."""
    for path in ("/translate", "/detect", "/v1/models/numbers:predict"):
        head = (
            f"POST {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: no\r\nContent-Length: 1000000\r\n\r\n"
        )
        assert published.send_raw(head.encode()) == 401


def test_start_page_shows_a_request(server):
    page = server.send("/").content.decode()
    assert "from en to de" in page
    assert 'href="docs"' in page
    _, url, _, body = shlex.split(html.unescape(re.search("<pre>(.*?)</pre>", page)[1]))
    assert url == f"{server.url}/translate"
    assert server.send("/translate", body).content == {"translatedText": "eins"}


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_load_nothing(server, path):
    answer = server.send(path)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.search(rb"<(script|link|img|iframe)|src=|@import", answer.content)


def test_host_is_escaped_in_start_page(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: <script>\r\nConnection: close\r\n\r\n")
        page = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"200 OK" in page
    assert b"<script>" not in page


@pytest.mark.parametrize(
    "path", ["/v1/models/foo:predict", "/v1/models/foo", "/v2/models/foo/infer"]
)
def test_other_model_is_named(server, path):
    answer = server.send(path)
    assert answer.status == 404
    assert answer.content["error"] == (
        "model: expected numbers, the model of this server, got foo; correct the URL."
    )


def test_libretranslatepy_works(server):
    libretranslatepy = pytest.importorskip("libretranslatepy")
    client = libretranslatepy.LibreTranslateAPI(server.url)
    assert client.translate("seven", "en", "de") == "sieben"
    assert client.detect("seven") == [{"confidence": 100, "language": "en"}]
    assert [language["code"] for language in client.languages()] == ["en", "de"]
