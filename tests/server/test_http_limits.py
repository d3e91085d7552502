"""What the connections of clients may do: heads, pipelining, malformed HTTP, clients that leave."""

import asyncio
import contextlib
import http.client
import inspect
import json
import re
import socket
import time

import pytest
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from tfk_transformer.apps.server import http_protocol

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def small(serve):
    """A server with small limits."""
    limits = ("--max-head", 2000, "--max-headers", 20, "--timeout", 1, "--body-timeout", 1)
    return serve(*limits, "--source-language", "en", "--target-language", "de")


@contextlib.contextmanager
def connected(server):
    """A connection to a server, which must answer within a minute, and the file of its answers."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection,
        connection.makefile("rb") as answers,
    ):
        yield connection, answers


def read_answer(answers):
    """Read one answer, and return its status, its JSON and whether the connection ends."""
    status = int(answers.readline().split()[1])
    headers = http.client.parse_headers(answers)
    assert headers["content-type"] == "application/json"
    content = json.loads(answers.read(int(headers["content-length"])))
    return status, content, headers["connection"] == "close"


def translation_request(text):
    body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
    return POST + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def memory(server):
    """Resident memory of a server in MB."""
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


TOO_LARGE = (
    431,
    {
        "error": (
            "head: expected at most 65536 bytes, got more; send a shorter URL, and fewer or "
            "shorter headers."
        )
    },
    True,
)
TOO_MANY = (
    431,
    {"error": "head: expected at most 100 headers, got 201; send fewer headers."},
    True,
)


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (HEAD + b"X: " + b"x" * 2_000_000 + b"\r\n\r\n", TOO_LARGE),
        (HEAD + b"X: " + b"x" * 2_000_000, TOO_LARGE),  # no end
        (b"GET /" + b"x" * 2_000_000 + b" HTTP/1.1\r\n\r\n", TOO_LARGE),
        (b"\r\n" * 1_000_000, TOO_LARGE),
        (HEAD + b"X: y\r\n" * 100_000 + b"\r\n", TOO_LARGE),
        (HEAD + b"X: y\r\n" * 200 + b"\r\n", TOO_MANY),
        (CHUNKED + b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 100_000, TOO_LARGE),  # trailers
        (CHUNKED + b"2;" + b"x" * 2_000_000, TOO_LARGE),  # an extension of a chunk
    ],
)
def test_large_heads_are_refused(server, data, answer):
    with connected(server) as (connection, answers):
        connection.sendall(data)
        assert read_answer(answers) == answer
    line = server.requests()[-1]
    assert (line["status"], line["path"] in ("(unknown)", "/translate")) == (431, True)


def test_heads_within_limits_are_read(small):
    """The limits are exact: a byte or a header more is refused."""
    fixed = len("/health") + len("Hostlocalhost") + 4 + len("X") + 4
    for extra, status in ((0, 200), (1, 431)):
        with connected(small) as (connection, answers):
            connection.sendall(HEAD + b"X: " + b"x" * (2000 - fixed + extra) + b"\r\n\r\n")
            assert read_answer(answers)[0] == status
        with connected(small) as (connection, answers):
            connection.sendall(HEAD + b"X: y\r\n" * (19 + extra) + b"\r\n")
            assert read_answer(answers)[0] == status


def test_slow_head_is_refused(small):
    with connected(small) as (stalled, answers), connected(small) as (silent, _):
        stalled.sendall(HEAD)
        error = "head: expected the whole head within 1 s, got a part; send all of it."
        assert read_answer(answers) == (408, {"error": error}, True)
        assert silent.recv(1) == b""


@pytest.mark.parametrize(
    ("rest", "part"),
    [
        (b"Content-Length: 1000000000\r\n\r\n", b"x"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"\r\n", b"\r\n"),  # blank lines before the next request
    ],
)
def test_slow_rest_ends_connection(small, rest, part):
    with connected(small) as (connection, answers):
        connection.sendall(HEAD + rest)
        assert read_answer(answers) == (200, {"status": "ok"}, False)
        with pytest.raises(ConnectionError):
            for _ in range(600):  # a minute
                connection.sendall(part)
                time.sleep(0.1)


@pytest.mark.parametrize("head", [HEAD, POST])
def test_endless_body_ends_connection(server, head):
    chunks = b"10000\r\n%s\r\n" % (b"x" * 0x10000)
    with connected(server) as (connection, _):
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):
            for _ in range(5000):  # 300 MB
                connection.sendall(chunks)


def test_late_body_keeps_connection(server):
    """A request that needs no body is answered before its body arrives."""
    with connected(server) as (connection, answers):
        for _ in range(2):
            connection.sendall(HEAD + b"Content-Length: 4\r\n\r\n")
            assert read_answer(answers) == (200, {"status": "ok"}, False)
            connection.sendall(b"body")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GARBAGE\r\n\r\n", "Invalid method"),
        (b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + b"x" * 100, "Invalid method"),  # TLS
        (b"GET / HTTP/9.9\r\n\r\n", "Invalid HTTP version"),
        (b"GET \xff HTTP/1.1\r\n\r\n", ""),
        (b"GET http://[ HTTP/1.1\r\n\r\n", ""),
        (b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", "Invalid header token"),
        (POST + b"Content-Length: -1\r\n\r\n", "Invalid character in Content-Length"),
        (CHUNKED + b"zz\r\n{}", "Invalid character in chunk size"),
    ],
)
def test_malformed_http_gets_json(server, data, reason):
    with connected(server) as (connection, answers):
        connection.sendall(data)
        status, content, ends = read_answer(answers)
    assert (status, ends) == (400, True)
    start = re.escape(f"HTTP: expected a request of HTTP/1.1, got another ({reason}")
    assert re.fullmatch(rf"{start}.*\); correct the client\.", content["error"])
    assert server.requests()[-1]["status"] == 400
    assert {line["level"] for line in server.lines()} == {"info"}


def test_pipelined_answers_keep_order(server):
    """The last request is malformed: it is refused after the answers to the others."""
    texts = {"forty-two": "zweiundvierzig", "seven": "sieben", "nine": "neun"}
    requests = [translation_request(text) for text in texts for _ in range(9)]
    with connected(server) as (connection, answers):
        connection.sendall(b"".join(requests) + b"GARBAGE\r\n\r\n")
        for expected in texts.values():
            for _ in range(9):
                assert read_answer(answers) == (200, {"translatedText": expected}, False)
        status, _, ends = read_answer(answers)
        assert (status, ends) == (400, True)


def test_large_pipelined_bodies_arrive(server):
    """The second body is still to be read when its request waits."""
    text = "seven" + " " * 400_000
    body = json.dumps({"q": "seven", "padding": text, "source": "en", "target": "de"}).encode()
    request = POST + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    with connected(server) as (connection, answers):
        connection.sendall(request * 3 + HEAD + b"\r\n")
        for _ in range(3):
            assert read_answer(answers) == (200, {"translatedText": "sieben"}, False)
        assert read_answer(answers) == (200, {"status": "ok"}, False)


def test_unread_pipeline_needs_no_memory(small):
    before = memory(small)
    with connected(small) as (connection, _), contextlib.suppress(OSError):
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\n\r\n" * 500_000)
    assert memory(small) < before + 20


def test_unread_answers_end_connection(small):
    with connected(small) as (connection, _), pytest.raises(ConnectionError):
        while True:
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\n\r\n" * 1000)


def test_client_that_leaves_is_no_error(server):
    request = translation_request("seven")
    with connected(server) as (connection, answers):
        connection.sendall(request[:-9])
        server.wait_until(lambda: server.metric("tfk_requests_in_flight") > 0)
    server.wait_until(lambda: server.metric("tfk_requests_in_flight") == 0)
    line = next(line for line in reversed(server.requests()) if line["path"] == "/translate")
    assert line["status"] == 499
    assert {line["level"] for line in server.lines()} == {"info"}


async def no_application(scope, receive, send):
    raise AssertionError


def test_uvicorn_has_all_names_used():
    """A name that a new uvicorn lacks is in the message."""
    source = inspect.getsource(http_protocol.LimitedProtocol)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        theirs = HttpToolsProtocol(Config(no_application), ServerState(), {}, loop)
        theirs.on_message_begin()
    added = set(re.findall(r"self\.(_\w+)(?:: .*)? = ", source))
    added |= {name for name in vars(http_protocol.LimitedProtocol) if name.startswith("_")}
    used = set(re.findall(r"\b(?:self|super\(\))\.(\w+)", source)) - added - {"limits"}
    used |= set(re.findall(r"\n    def ([a-z]\w+)", source))
    assert len(used) > 20
    assert [name for name in sorted(used) if not hasattr(theirs, name)] == []
    requests = inspect.getsource(RequestResponseCycle)
    used = set(re.findall(r"self\.cycle\.(\w+)", source))
    assert len(used) >= 4
    assert [name for name in sorted(used) if f"self.{name} = " not in requests] == []
    used = set(re.findall(r"self\.transport\.(\w+)", requests))
    assert used == {"write", "is_closing", "close"}  # those of a refused request's connection
