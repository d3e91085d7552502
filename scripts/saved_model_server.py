"""The SavedModel user's server: an exported model behind HTTP, with only TensorFlow and TensorFlow Text.

python scripts/saved_model_server.py SAVED_MODEL [PORT]

It answers the predict requests of TensorFlow Serving's REST interface in their column form, for trying out and for tests;
in production TensorFlow Serving itself takes its place.
"""

import http.server
import json
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the operators)

model = tf.saved_model.load(sys.argv[1])


def plain(tensor):
    """Turn a tensor into lists, and its bytes into text."""
    values = tf.strings.unicode_transcode(tensor, "UTF-8", "UTF-8").numpy() if tensor.dtype == tf.string else tensor.numpy()
    return [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]


class Predict(http.server.BaseHTTPRequestHandler):
    """POST /v1/models/NAME:predict with {"signature_name": …, "inputs": {"text": […]}}."""

    def do_POST(self):
        """Run one request."""
        try:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            function = model.signatures[request.get("signature_name", "serving_default")]
            wanted = function.structured_input_signature[1]
            found = function(**{name: tf.constant(value, wanted[name].dtype) for name, value in request["inputs"].items()})
            status, answer = 200, {"outputs": {name: plain(tensor) for name, tensor in found.items()}}
        except (KeyError, TypeError, ValueError, tf.errors.OpError) as error:
            status, answer = 400, {"error": f"{type(error).__name__}: {error}"}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 8501), Predict)
    print(f"listening on http://127.0.0.1:{server.server_port}/v1/models/translator:predict", flush=True)
    server.serve_forever()
