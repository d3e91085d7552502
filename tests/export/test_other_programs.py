"""ONNX files in programs that know nothing of this project: a plain onnxruntime session, ONNX's
reference evaluator, OpenVINO.
"""

import json
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tfk_transformer.export.parity import probe_ids
from tfk_transformer.export.runtime.sessions import open_session

OPEN = """
import json, os, sys, onnxruntime, onnxruntime_extensions
for path in sys.argv[2:]:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    options.log_severity_level = int(sys.argv[1])
    session = onnxruntime.InferenceSession(path, options)
    print(json.dumps([value.name for value in session.get_overridable_initializers()]))
    os.write(2, b"NEXT FILE\\n")  # what onnxruntime wrote of this file stands above
"""
WARNING, ERROR = 2, 3  # onnxruntime's levels; the first is the default
FILES = (
    "translate.onnx",
    "generate.onnx",
    "score.onnx",
    "tokenizer.onnx",
    "encoder.onnx",
    "decoder_step.onnx",
)
# OpenVINO draws other tokens, see docs/exports.md.
DRAWN: dict[str, object] = {"temperature": 1.3, "seed": 7, "n_best": 2}
SETTINGS: list[dict[str, object]] = [
    {},
    {"beam_size": 1},
    {"beam_size": 3, "n_best": 3, "length_penalty": 0.25},
    {
        "coverage_penalty": 0.4,
        "repetition_penalty": 1.5,
        "no_repeat_ngram_size": 2,
        "min_length": 3,
        "max_length": 7,
    },
    {"prefix_ids": [[7, 9, 0]]},
]


def opened_plainly(folder, severity):
    """Return of each file the names of its optional inputs, and what a process that opens it writes
    to stderr.
    """
    paths = [folder / name for name in FILES]
    command = [sys.executable, "-c", OPEN, str(severity), *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *written, after = done.stderr.split("NEXT FILE\n")
    assert after == ""
    return dict(
        zip(
            FILES, zip(map(json.loads, done.stdout.splitlines()), written, strict=True), strict=True
        )
    )


@pytest.mark.long  # two processes
def test_plain_session_warns_of_defaults(exported):
    with_warnings, with_errors = (opened_plainly(exported, level) for level in (WARNING, ERROR))
    for name in FILES:
        optional, written = with_warnings[name]
        warned = [
            re.findall(r"Initializer (\w+) appears in graph inputs", line)
            for line in written.splitlines()
        ]
        assert sorted(warned) == sorted([each] for each in optional), name
        assert with_errors[name] == (optional, ""), name


@pytest.fixture(scope="module")
def source(translator):
    """int32 ids (7, S): sentences of several lengths, a blank one and one of padding only."""
    ids = probe_ids(
        ["forty-two", "one hundred ninety-nine", "seven", "no number at all", "eighty", ""],
        translator.source_tokenizer,
        32,
    )
    return np.pad(ids, [(0, 1), (0, 0)])


@pytest.fixture(scope="module")
def session(exported):
    return open_session(exported / "generate.onnx")


def as_inputs(source, settings):
    return {"source_ids": source} | {
        name: np.array(value, "float32" if isinstance(value, float) else "int32")
        for name, value in settings.items()
    }


def check(actual, expected):
    """Compare ids, and scores to 1e-4."""
    np.testing.assert_array_equal(actual[0], expected[0])
    np.testing.assert_allclose(actual[1], expected[1], atol=1e-4)


@pytest.mark.parametrize("settings", [*SETTINGS, DRAWN])
def test_reference_evaluator_same_ids(exported, session, source, settings):
    inputs = as_inputs(source, settings)
    check(
        ReferenceEvaluator(str(exported / "generate.onnx")).run(["ids", "scores"], inputs),
        session.run(["ids", "scores"], inputs),
    )


@pytest.mark.parametrize(
    "prefix", [np.zeros((1, 0)), np.zeros((1, 1)), np.zeros((7, 3)), np.full((1, 1), 2)]
)
def test_empty_prefix_forces_nothing(session, source, prefix):
    names = ["ids", "scores"]
    for actual, expected in zip(
        session.run(names, {"source_ids": source, "prefix_ids": prefix.astype("int32")}),
        session.run(names, {"source_ids": source}),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, expected)


def compiled(model):
    """Return the network of a path or of a file's content, and a function of inputs by name to ids
    and scores, with OpenVINO, whose default on some processors is bfloat16.
    """
    openvino = pytest.importorskip("openvino")
    core = openvino.Core()
    network = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(inputs):
        actual = network(inputs)
        return actual["ids"], actual["scores"]

    return network, run


@pytest.mark.long  # compiles the graph
def test_openvino_default_search(exported, session, source):
    network, run = compiled(exported / "generate.onnx")
    # OpenVINO reads inputs that have a default as constants.
    assert [value.any_name for value in network.inputs] == ["source_ids"]
    check(run({"source_ids": source}), session.run(["ids", "scores"], {"source_ids": source}))


@pytest.mark.long  # compiles the graph again
def test_openvino_search_with_settings(exported, session, source):
    model = onnx.load(exported / "generate.onnx")
    inputs = {value.name for value in model.graph.input}
    defaults = [tensor for tensor in model.graph.initializer if tensor.name in inputs]
    for tensor in defaults:
        model.graph.initializer.remove(tensor)
    _, run = compiled(model.SerializeToString())
    default_values = {tensor.name: onnx.numpy_helper.to_array(tensor).copy() for tensor in defaults}
    for settings in SETTINGS:
        chosen = as_inputs(source, settings)
        check(run(default_values | chosen), session.run(["ids", "scores"], chosen))


@pytest.fixture(scope="module")
def text_session(exported):
    return open_session(exported / "translate.onnx", text_operators=True)


def texts(*values):
    return np.array(values, object)


def test_onnxruntime_reads_list_only_of_required_input(text_session, translator):
    expected = [[translation.text] for translation in translator.translate(["forty-two"])]
    for text in (texts("forty-two"), ["forty-two"]):
        assert text_session.run(["translations"], {"text": text})[0].tolist() == expected
    with pytest.raises(RuntimeError, match="Failed to find input with name: prefix"):
        text_session.run(None, {"text": texts("forty-two"), "prefix": ["zwei"]})
    with pytest.raises(RuntimeError, match="Unable to handle object of type <class 'int'>"):
        text_session.run(None, {"text": texts("forty-two"), "n_best": 2})


def test_prefix_is_one_text_or_one_for_each(text_session, translator):
    sources = ["forty-two", "seven"]

    def run(*prefixes):
        inputs = {"text": texts(*sources), "prefix": texts(*prefixes)}
        return text_session.run(["translations"], inputs)[0][:, 0].tolist()

    def expected(*prefixes):
        return [
            translation.text for translation in translator.translate(sources, prefixes=prefixes)
        ]

    assert run("zwei", "") == expected("zwei", "")
    assert run("z") == expected("z", "z")
    assert [text[:1] for text in run("z")] == ["z", "z"]
    assert run(None, "") == run("None", "")
