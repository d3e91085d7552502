"""ONNX files in programs that know nothing of this project, such as a plain onnxruntime session."""

import re
import subprocess
import sys

import pytest

OPEN = """
import sys, onnxruntime, onnxruntime_extensions
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
options.log_severity_level = int(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], options)
print(*(value.name for value in session.get_overridable_initializers()))
"""
WARNING, ERROR = 2, 3  # onnxruntime's levels; the first is the default
FILES = ("translate.onnx", "generate.onnx", "score.onnx", "tokenizer.onnx", "encoder.onnx", "decoder_step.onnx")


def opened_plainly(path, severity):
    """Return the names of a file's optional inputs, and what a process that opens the file writes to stderr."""
    done = subprocess.run([sys.executable, "-c", OPEN, path, str(severity)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize("name", FILES)
def test_a_plain_session_warns_of_each_default_and_of_nothing_else(exported, name):
    optional, written = opened_plainly(exported / name, WARNING)
    warned = [re.findall(r"Initializer (\w+) appears in graph inputs", line) for line in written.splitlines()]
    assert sorted(warned) == sorted([each] for each in optional)
    assert opened_plainly(exported / name, ERROR) == (optional, "")
