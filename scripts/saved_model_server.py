"""The SavedModel user's server: an exported model behind HTTP, with only TensorFlow, TensorFlow Text and the standard library.

python scripts/saved_model_server.py SAVED_MODEL [PORT]

It answers the predict requests of TensorFlow Serving's REST interface, for trying out and for tests; in production TensorFlow
Serving itself takes its place. NaN and infinities, which JSON lacks, are the strings "NaN", "Infinity" and "-Infinity".
"""

import concurrent.futures
import contextlib
import http.server
import json
import math
import re
import socket
import sys
import threading

import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the operators)

PATH = re.compile("/v1/models/[^/:]+:predict")  # any name, since there is one model
LARGEST = 2**20  # bytes of a request's body
calls = threading.Semaphore(2)  # of the model at the same time, each of which uses several processors
signatures = tf.saved_model.load(sys.argv[1]).signatures


class Refused(Exception):
    """A status and an error message."""


def plain(value):
    """Turn the values of a tensor, in lists, into values that JSON has."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def to_tensor(name, value, spec):
    """Turn an input into a tensor of the signature's type and shape."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        tensor = tf.constant(value, spec.dtype)
        if spec.shape.is_compatible_with(tensor.shape):
            return tensor
    raise Refused(400, f"{name}: expected {spec.dtype.name} of shape {spec.shape}, got {json.dumps(value)[:50]}; correct this input.")


def predict(request):
    """Run the signature that a request names, and return the answer in the format of the request: columns or rows."""
    if not isinstance(request, dict) or ("inputs" in request) == ("instances" in request):
        raise Refused(400, 'body: expected an object with either "inputs" or "instances", got neither or both; send one of them.')
    chosen, rows = request.get("signature_name", "serving_default"), "instances" in request
    if not isinstance(chosen, str) or chosen not in signatures:
        raise Refused(400, f"signature_name: expected one of {', '.join(signatures)}, got {json.dumps(chosen)[:50]}; correct the name.")
    specs, given = signatures[chosen].structured_input_signature[1], request["instances" if rows else "inputs"]
    if rows and isinstance(given, list) and all(isinstance(row, dict) and row.keys() == specs.keys() for row in given):
        given = {name: [row[name] for row in given] for name in specs}
    if len(specs) == 1 and isinstance(given, list):
        given = dict.fromkeys(specs, given)  # a single input needs no name
    if not isinstance(given, dict) or given.keys() != specs.keys():
        raise Refused(400, f"inputs: expected {', '.join(specs)} by name, got {json.dumps(given)[:50]}; send all of them.")
    tensors = {name: to_tensor(name, value, specs[name]) for name, value in given.items()}
    with calls:
        outputs = {name: plain(tensor.numpy().tolist()) for name, tensor in signatures[chosen](**tensors).items()}
    if len(outputs) == 1:
        (outputs,) = outputs.values()
    elif rows:
        outputs = [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
    return {"predictions" if rows else "outputs": outputs}


class Predict(http.server.BaseHTTPRequestHandler):
    """POST /v1/models/NAME:predict with {"signature_name": …, "inputs": {"text": […]}}."""

    timeout = 10  # seconds that a client may be silent
    default_request_version = "HTTP/1.0"  # else a request without a version has an answer without a status

    def do_POST(self):
        """Answer one request."""
        try:
            self.answer(200, predict(json.loads(self.body())))
        except Refused as error:
            self.answer(*error.args)
        except TimeoutError:
            self.answer(408, f"body: expected Content-Length bytes, got fewer for {self.timeout} s; send the whole body.")
        except (ValueError, RecursionError, tf.errors.InvalidArgumentError) as error:
            self.answer(400, f"body: expected JSON that the model accepts, got an error: {error}; correct the request.")
        except Exception as error:
            self.answer(500, f"{type(error).__name__}: {error}")

    do_GET = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST

    def body(self):
        """Return the body of a request that this server takes."""
        length = self.headers["Content-Length"] or ""
        if not PATH.fullmatch(self.path):
            raise Refused(404, f"path: expected /v1/models/NAME:predict, got {self.path}; correct the URL.")
        if self.command != "POST":
            raise Refused(405, f"method: expected POST, got {self.command}; send a POST.")
        if not length:
            raise Refused(411, "Content-Length: expected the size of the body in bytes, got none; send this header.")
        if not re.fullmatch("[0-9]+", length):
            raise Refused(400, f"Content-Length: expected the size of the body in bytes, got {length[:50]}; correct this header.")
        size = int(length[:20])
        if size > LARGEST:
            raise Refused(413, f"body: expected at most {LARGEST} bytes, got {length[:50]}; send fewer texts at a time.")
        body = self.rfile.read(size)
        if len(body) < size:
            raise Refused(400, f"body: expected {size} bytes, got {len(body)}; send as many bytes as Content-Length names.")
        return body

    def answer(self, status, answer):
        """Send an answer, or the message of an error."""
        body = json.dumps({"error": answer} if isinstance(answer, str) else answer, allow_nan=False).encode()
        with contextlib.suppress(OSError):  # the client is gone
            self.send_response(status)
            for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Allow", "POST")):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(1)
            left = 4 * LARGEST  # what the client still sends is read, since a reset connection would lose the answer
            while left > 0 and (data := self.connection.recv(2**16)):
                left -= len(data)

    def send_error(self, code, message=None, explain=None):
        """Answer what the base class refuses: what is no HTTP, and methods that it does not know."""
        self.answer(405 if code == 501 else code, f"request: expected a POST of HTTP, got an error: {message}; correct the request.")


class Server(http.server.ThreadingHTTPServer):
    """A server with a thread for each connection, up to a limit."""

    request_queue_size = 128  # connections that wait to be accepted
    threads = concurrent.futures.ThreadPoolExecutor(64)

    def process_request(self, request, client_address):
        """Serve a connection when a thread is free."""
        self.threads.submit(self.process_request_thread, request, client_address)


server = Server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 8501), Predict)
print(f"listening on http://127.0.0.1:{server.server_port}/v1/models/translator:predict", flush=True)
with contextlib.suppress(KeyboardInterrupt):
    server.serve_forever()
