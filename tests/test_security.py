"""docs/security.md: which files are data and which are programs."""

import numpy as np
import pytest

SECRET = "written by a SavedModel"


@pytest.fixture
def writing_model(tmp_path):
    """A SavedModel whose function, and whose initializer, each write a file. Return the folder and
    the two files.
    """
    import tensorflow as tf

    opened, called = tmp_path / "opened.txt", tmp_path / "called.txt"

    class Initialized(tf.saved_model.experimental.TrackableResource):
        """A resource; TensorFlow initializes it when the SavedModel is opened."""

        def _create_resource(self):
            return tf.raw_ops.MutableHashTableV2(key_dtype=tf.string, value_dtype=tf.int64)

        def _initialize(self):
            tf.io.write_file(str(opened), SECRET)

    class Module(tf.Module):
        def __init__(self):
            self.resource = Initialized()

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def translate(self, text):
            tf.io.write_file(str(called), SECRET)
            return {"translations": text}

    folder = tmp_path / "saved_model"
    module = Module()
    tf.saved_model.save(
        module, str(folder), signatures={"translate": module.translate.get_concrete_function()}
    )
    for path in (opened, called):
        path.unlink(missing_ok=True)
    return folder, opened, called


def test_saved_model_can_write_files(writing_model):
    import tensorflow as tf

    folder, opened, called = writing_model
    model = tf.saved_model.load(str(folder))
    assert opened.read_text() == SECRET
    assert not called.exists()
    model.translate(tf.constant(["forty-two"]))
    assert called.read_text() == SECRET


def test_inspect_opens_no_saved_model(writing_model):
    from tfk_transformer.export.inspection import inspect

    folder, opened, _ = writing_model
    assert "translate" in inspect(folder)["signatures"]
    assert not opened.exists()


def test_lambda_layer_is_refused(tmp_path):
    import keras

    inputs = keras.Input([3])
    model = keras.Model(inputs, keras.layers.Lambda(lambda x: x + 1)(inputs))
    model.save(tmp_path / "lambda.keras")
    with pytest.raises(ValueError, match=r"`?Lambda`? .*safe_mode"):
        keras.saving.load_model(tmp_path / "lambda.keras")


def test_pickled_checkpoint_is_refused(tmp_path):
    """NumPy would make the object with pickle, which runs code."""
    from tfk_transformer.training.checkpoints import STATE, Checkpoints

    np.savez(tmp_path / STATE, about=np.array([object()], dtype=object))

    class Model:
        variables = []
        optimizer = type("Optimizer", (), {"variables": []})

    with pytest.raises(ValueError, match="expected arrays of numbers, got object for 'about'"):
        Checkpoints(tmp_path).restore(Model())


def test_pickled_shard_is_refused(tmp_path):
    from tfk_transformer.data.encoding import Rows

    for part in ("ids", "ends"):
        np.save(tmp_path / f"00000.0.{part}.npy", np.array([object()], dtype=object))
    with pytest.raises(ValueError, match="expected arrays of numbers, got object"):
        Rows.load(tmp_path / "00000.0")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname"])
def test_onnx_reads_no_outside_weights(tmp_path, location):
    import onnx

    from tfk_transformer.export.runtime.sessions import open_session

    (tmp_path / "secret.bin").write_bytes(bytes(16))
    weights = onnx.TensorProto(
        name="weights",
        data_type=onnx.TensorProto.FLOAT,
        dims=[4],
        data_location=onnx.TensorProto.EXTERNAL,
    )
    weights.external_data.add(key="location", value=location)
    output = onnx.helper.make_tensor_value_info("output", onnx.TensorProto.FLOAT, [4])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["weights"], ["output"])],
        "graph",
        [],
        [output],
        [weights],
    )
    folder = tmp_path / "model"
    folder.mkdir()
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="does not load: .*[Ee]xternal data"):
        open_session(folder / "model.onnx")
