"""A SavedModel on servers: folders, warm-up, the requests of docs/serving.md, and a program in
C.
"""

import functools
import json
import re
import shlex
import shutil
import subprocess
import sys
from concurrent import futures
from importlib.util import find_spec
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from forked_programs import run_program
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2, prediction_service_pb2_grpc
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.to_saved_model.serving import (
    BATCHING_PARAMETERS,
    newest_version,
    write_serving,
)
from tfk_transformer.export.to_saved_model.writer import WARM_UP

REPOSITORY = Path(__file__).parents[2]
GUIDE = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")
TEXTS = ["forty-two", "one hundred ninety-nine", "", "seven", "Ünïcödé ﬁ ½ 中"]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def signatures(saved_model):
    return saved_model.signatures


@pytest.fixture
def served(exported, tmp_path):
    """A folder of models with one version of one."""
    write_serving(exported / "saved_model", tmp_path / "models", "numbers")
    return tmp_path / "models"


def test_warm_up_runs_its_signatures(exported, signatures, translator):
    records = tf.data.TFRecordDataset(str(exported / "saved_model" / WARM_UP)).as_numpy_iterator()
    requests = [
        prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        for record in records
    ]
    assert [request.model_spec.signature_name for request in requests] == [
        "serving_default",
        "serving_default",
        "score",
        "score",
    ]
    for request, size in zip(requests, (1, 8, 1, 8), strict=True):
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        actual = signatures[request.model_spec.signature_name](
            **{name: tf.constant(value) for name, value in inputs.items()}
        )
        assert {value.shape for value in inputs.values()} == {(size,)}
        if "translation" in actual:
            expected = [
                translation.text
                for translation in translator.translate([text.decode() for text in inputs["text"]])
            ]
            assert [text.decode() for text in actual["translation"].numpy()] == expected
            assert sum(map(bool, expected)) > size / 2
        assert np.isfinite(actual["score" if "score" in actual else "log_probability"]).all()


def test_warm_up_requests_are_batchable(exported, signatures):
    records = tf.data.TFRecordDataset(str(exported / "saved_model" / WARM_UP)).as_numpy_iterator()
    for record in records:
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        shapes = [tensor.tensor_shape.dim for tensor in request.inputs.values()]
        assert all(len(shape) >= 1 for shape in shapes)
        assert len({shape[0].size for shape in shapes}) == 1


def test_serving_versions_are_numbered(exported, served):
    assert newest_version(served / "numbers") == served / "numbers" / "1"
    assert (
        write_serving(exported / "saved_model", served, "numbers", version=9)
        == served / "numbers" / "9"
    )
    assert write_serving(exported / "saved_model", served, "numbers") == served / "numbers" / "10"
    assert sorted(path.name for path in (served / "numbers").iterdir()) == ["1", "10", "9"]
    assert (served / "numbers" / "10" / WARM_UP).is_file()
    shutil.rmtree(served / "numbers" / "9" / "variables")  # what is not opened may be broken
    assert newest_version(served / "numbers") == served / "numbers" / "10"
    assert load(served / "numbers").translate(["forty-two"])[0].text == "zweiundvierzig"
    assert newest_version(served) is None


def test_models_added_at_once_are_listed(tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "saved_model.pb").write_bytes(b"")
    names = ["four", "models", "at", "once"]
    with futures.ThreadPoolExecutor(len(names)) as threads:
        add = functools.partial(write_serving, tmp_path / "exported", tmp_path / "models")
        list(threads.map(add, names))
    config = text_format.Parse(
        (tmp_path / "models" / "models.config").read_text(), ModelServerConfig()
    )
    assert {model.name for model in config.model_config_list.config} == set(names)


def test_models_config_keeps_old_entries(exported, served):
    config = text_format.Parse((served / "models.config").read_text(), ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == (
        "numbers",
        "/models/numbers",
        "tensorflow",
    )
    model.model_version_policy.latest.num_versions = 2
    (served / "models.config").write_text(text_format.MessageToString(config))
    (served / "batching_parameters.txt").write_text("max_batch_size { value: 8 }")
    write_serving(exported / "saved_model", served, "numbers")
    write_serving(exported / "saved_model", served, "more", mounted="/srv")
    first, second = text_format.Parse(
        (served / "models.config").read_text(), ModelServerConfig()
    ).model_config_list.config
    assert first == model
    assert (second.name, second.base_path) == ("more", "/srv/more")
    assert (served / "batching_parameters.txt").read_text() == "max_batch_size { value: 8 }"


def test_bad_serving_input_is_refused(exported, served, tmp_path):
    saved_model = exported / "saved_model"
    for arguments, message in (
        ((exported, served, "new"), "expected a folder with saved_model.pb"),
        ((saved_model, served, "a/b"), "name: expected letters"),
        (
            (saved_model, served, "new", 0),
            "version: expected a new number of at least 1, got 0; .* has none",
        ),
        ((saved_model, served, "numbers", 1), r"version: .* got 1; .* has \[1\]"),
        ((saved_model, served / "models.config", "new"), "models: expected a path inside a folder"),
    ):
        with pytest.raises(ValueError, match=message):
            write_serving(*arguments)
    (served / "models.config").write_text("models {")
    with pytest.raises(ValueError, match="models: expected a ModelServerConfig in .*models.config"):
        write_serving(saved_model, served, "new")
    assert sorted(path.name for path in served.iterdir()) == [
        "batching_parameters.txt",
        "models.config",
        "numbers",
    ]


def test_batching_parameters_parse(served):
    """The package of the interface does not have this message; these are its fields and their
    numbers in the server's source.
    """
    assert (served / "batching_parameters.txt").read_text() == BATCHING_PARAMETERS
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="batching.proto", package="serving", syntax="proto3"
    )
    file.dependency.append("google/protobuf/wrappers.proto")
    message = file.message_type.add(name="BatchingParameters")
    names = ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
    for number, name in enumerate(names, 1):
        wrapped = {"type": field.TYPE_MESSAGE, "type_name": ".google.protobuf.Int64Value"}
        message.field.add(name=name, number=number, label=field.LABEL_OPTIONAL, **wrapped)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("serving.BatchingParameters"))
    parameters = text_format.Parse(BATCHING_PARAMETERS, kind())
    assert (parameters.max_batch_size.value, parameters.batch_timeout_micros.value) == (32, 5000)
    assert parameters.max_enqueued_batches.value == 100


def of_rest(request, signatures):
    """Turn a REST request into a signature and its inputs by the server's rules: every input, in
    the signature's type.
    """
    function = signatures[request.get("signature_name", "serving_default")]
    expected = function.structured_input_signature[1]
    inputs = request.get("inputs")
    if inputs is None:
        (name,) = expected  # instances without names need exactly one input
        inputs = {name: request["instances"]}
    assert set(inputs) == set(expected)
    return function, {
        name: tf.constant(value, expected[name].dtype) for name, value in inputs.items()
    }


def test_guide_json_fits_signatures(signatures):
    requests = [json.loads(block) for block in blocks("json")]
    assert [request.get("signature_name") for request in requests] == [
        "serving_default",
        None,
        "translate",
        "score",
    ]
    columns, rows, settings, score = [
        function(**inputs) for function, inputs in (of_rest(r, signatures) for r in requests)
    ]
    for actual in (columns, rows):
        assert actual["translation"].numpy().tolist() == [b"zweiundvierzig", b"sieben"]
        assert actual["score"].shape == [2]
    assert settings["translations"].numpy()[:, 0].tolist() == [b"zweiundvierzig", b"sieben"]
    assert settings["translations"].shape == settings["scores"].shape == [2, 2]
    assert score["log_probability"].shape == [1]


class Session(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The Predict call on a SavedModel in a session, whose inputs may be left out where they have
    defaults.
    """

    def __init__(self, folder):
        self.session = tf.compat.v1.Session(graph=tf.Graph())
        self.signatures = tf.compat.v1.saved_model.load(
            self.session, ["serve"], str(folder)
        ).signature_def

    def Predict(self, request, context):
        signature = self.signatures[request.model_spec.signature_name]
        missing = set(signature.inputs) - set(request.inputs) - set(signature.defaults)
        if missing:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"Missing: {sorted(missing)}")
        feeds = {
            signature.inputs[name].name: tf.make_ndarray(tensor)
            for name, tensor in request.inputs.items()
        }
        fetched = self.session.run(
            {name: tensor.name for name, tensor in signature.outputs.items()}, feeds
        )
        return predict_pb2.PredictResponse(
            outputs={name: tf.make_tensor_proto(value) for name, value in fetched.items()}
        )


def test_guide_grpc_client_translates(exported, translator):
    server = grpc.server(futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Session(exported / "saved_model"), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        (code,) = [block for block in blocks("python") if "grpc" in block]
        scope = {}
        exec(code.replace("localhost:8500", f"127.0.0.1:{port}"), scope)
    finally:
        server.stop(None)
    expected = translator.translate(["forty-two", "seven"], n_best=2)
    assert scope["translations"] == [
        [h.text for h in translation.hypotheses] for translation in expected
    ]
    np.testing.assert_allclose(
        scope["scores"],
        [[h.score for h in translation.hypotheses] for translation in expected],
        atol=1e-4,
    )


def test_guide_saved_model_cli_runs(exported, tmp_path):
    (block,) = [block for block in blocks("bash") if "saved_model_cli" in block]
    commands = [shlex.split(line) for line in block.replace("\\\n", "").splitlines()]
    (tmp_path / "numbers-files").symlink_to(exported)
    outputs = []
    for program, *arguments in commands:
        assert program == "python"
        done = run_program([sys.executable, *arguments], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    shown, run = outputs
    assert "inputs['text'] tensor_info:\n      dtype: DT_STRING\n      shape: (-1)" in shown
    assert "inputs['beam_size'] tensor_info:\n      dtype: DT_INT32\n      shape: ()" in shown
    assert re.search(r"translations:\n\[\[b'zweiundvierzig' b'.+'\]\]", run)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The C program, compiled as its first lines describe, and the operator library that it
    needs.
    """
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler: apt-get install gcc")
    library = Path(tf.sysconfig.get_lib())
    (command,) = [
        line
        for line in "".join(blocks("bash")).replace("\\\n", "").splitlines()
        if line.startswith("cc ")
    ]
    folder = tmp_path_factory.mktemp("program")
    (folder / "scripts").symlink_to(REPOSITORY / "scripts")
    done = subprocess.run(
        ["sh", "-ec", f"TF={shlex.quote(str(library))}; {command}"], cwd=folder, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    text = Path(find_spec("tensorflow_text").origin).parent
    return [
        folder / "saved_model_translate",
        text / "python" / "ops" / "_sentencepiece_tokenizer.so",
    ]


def translate_in_c(program, saved_model, text: str):
    binary, operators = program
    return subprocess.run(
        [binary, saved_model, operators], input=text.encode(), capture_output=True
    )


@pytest.mark.long  # compiles the program
def test_c_program_matches_keras(program, exported, translator):
    texts = TEXTS * 9  # more than one batch, and not a whole number of them
    expected = [result.text for result in translator.translate(texts, split_sentences=False)]
    # A line that is too long, and one that ends as on Windows.
    lines = [*texts, "one " * 10000, "seven\r", "forty-two"]
    done = translate_in_c(program, exported / "saved_model", "\n".join(lines))
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split("\n")[:-1] == [*expected, "", "sieben", "zweiundvierzig"]
    assert f"line {len(texts) + 1}: longer than the model reads" in done.stderr.decode()


@pytest.mark.long  # compiles the program
def test_c_program_reports_bad_files(program, exported, tmp_path):
    for saved_model, operators, message in (
        (tmp_path, program[1], f"error: {tmp_path}: .*SavedModel"),
        (exported / "saved_model", tmp_path / "none.so", "error: .*none.so: .*No such file"),
    ):
        done = translate_in_c([program[0], operators], saved_model, "seven\n")
        assert (done.returncode, done.stdout) == (1, b"")
        assert re.search(message, done.stderr.decode())
