"""Rows of the table of Keras's methods: `export`."""

import tempfile

import keras
import numpy as np
from keras_surface_rows import (
    INPUTS,
    Lacking,
    Refused,
    close,
    logits,
    new_model,
    numpy,
    row,
)

EXPORT = "`export`"


NEEDS_SHAPES = Refused("input_signature: expected fixed shapes with PyTorch, got .*")


@row(EXPORT, torch=Refused("format: expected .*"))
def export_saved_model() -> None:
    """`tf_saved_model`"""
    import tensorflow as tf

    model = new_model()
    with tempfile.TemporaryDirectory() as path:
        model.export(path, verbose=False)
        loaded = tf.saved_model.load(path)
        close(loaded.serve({n: tf.constant(a) for n, a in INPUTS.items()}), logits(model), 1e-4)


@row(EXPORT, jax=Lacking("jax2onnx", "needs jax2onnx"), torch=NEEDS_SHAPES)
def export_onnx() -> None:
    """`onnx`"""
    _onnx()


def _onnx(**arguments: object) -> None:
    import onnxruntime

    model = new_model()
    with tempfile.TemporaryDirectory() as path:
        model.export(f"{path}/m.onnx", format="onnx", verbose=False, **arguments)
        session = onnxruntime.InferenceSession(f"{path}/m.onnx")
        names = [each.name for each in session.get_inputs()]
        arrays = dict(zip(names, [INPUTS["source"], INPUTS["target"]], strict=True))
        close(session.run(None, arrays)[0], logits(model), 1e-4)


@row(EXPORT, jax=Lacking("LiteRT export requires"), torch=NEEDS_SHAPES)
def export_litert() -> None:
    """`litert`"""
    import tensorflow as tf

    model = new_model()
    with tempfile.TemporaryDirectory() as path:
        model.export(f"{path}/m.tflite", format="litert", verbose=False)
        interpreter = tf.lite.Interpreter(
            f"{path}/m.tflite",
            experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        details = interpreter.get_input_details()
        for each in details:
            interpreter.resize_tensor_input(each["index"], _named(each["name"]).shape)
        interpreter.allocate_tensors()
        for each in details:
            interpreter.set_tensor(each["index"], _named(each["name"]))
        interpreter.invoke()
        output = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    close(output, logits(model), 1e-4)


def _named(name: str) -> np.ndarray:
    return INPUTS["source" if "source" in name else "target"]


@row(EXPORT, jax=Lacking("XlaCallModule", "not in OpenVINO"))
def export_openvino() -> None:
    """`openvino`"""
    import openvino

    model = new_model()
    with tempfile.TemporaryDirectory() as path:
        model.export(f"{path}/m.xml", format="openvino", verbose=False)
        precision = {"INFERENCE_PRECISION_HINT": "f32"}
        run = openvino.Core().compile_model(f"{path}/m.xml", "CPU", precision)
        output = run(list(INPUTS.values()))[0]
    close(output, logits(model), 1e-4)


NO_TORCH = Lacking("torch|PyTorch")


@row(EXPORT, tensorflow=NO_TORCH, jax=NO_TORCH, torch=NEEDS_SHAPES)
def export_torch() -> None:
    """`torch`"""
    new_model().export("unwritten.pt2", format="torch", verbose=False)


def _fixed_shapes() -> list:
    return [{n: keras.InputSpec("int32", shape=a.shape, name=n) for n, a in INPUTS.items()}]


@row(EXPORT, jax=Lacking("jax2onnx", "needs jax2onnx"))
def export_onnx_fixed() -> None:
    """`onnx`, with fixed shapes as `input_signature`"""
    _onnx(input_signature=_fixed_shapes())


@row(EXPORT, tensorflow=NO_TORCH, jax=NO_TORCH)
def export_torch_fixed() -> None:
    """`torch`, with fixed shapes as `input_signature`"""
    model = new_model()
    with tempfile.TemporaryDirectory() as path:
        model.export(
            f"{path}/m.pt2", format="torch", verbose=False, input_signature=_fixed_shapes()
        )
        import torch

        run = torch.export.load(f"{path}/m.pt2").module()
        output = run({name: torch.tensor(array) for name, array in INPUTS.items()})
    close(numpy(output), logits(model), 1e-4)


@row(EXPORT, torch=Lacking("`track` is not supported"))
def export_archive() -> None:
    """`keras.export.ExportArchive`"""
    model = new_model()
    with tempfile.TemporaryDirectory() as path:
        archive = keras.export.ExportArchive()
        archive.track(model)
        spec = {n: keras.InputSpec("int32", shape=(None, None), name=n) for n in INPUTS}
        archive.add_endpoint("serve", model.call, input_signature=[spec])
        archive.write_out(path, verbose=False)
        import tensorflow as tf

        loaded = tf.saved_model.load(path)
        close(loaded.serve({n: tf.constant(a) for n, a in INPUTS.items()}), logits(model), 1e-4)
