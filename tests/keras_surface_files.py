"""Rows of the table of Keras's methods: the model's parts, files, exports, precision, devices."""

import contextlib
import json
import tempfile
from collections.abc import Iterator

import keras
import numpy as np
from keras_surface_rows import (
    BACKEND,
    CONFIG,
    INPUTS,
    LABELS,
    Lacking,
    Refused,
    close,
    compiled,
    differ,
    fit,
    fit_losses,
    logits,
    new_model,
    numpy,
    row,
    same_logits,
)

import tfk_transformer as tfk

PARTS, FILES, EXPORT, PRECISION, DEVICES = (
    "the model and its parts",
    "files and configurations",
    "`export`",
    "precision, quantization, LoRA",
    "devices",
)


@contextlib.contextmanager
def folder() -> Iterator[str]:
    """Yield a temporary folder."""
    with tempfile.TemporaryDirectory() as path:
        yield path


@row(PARTS)
def call() -> None:
    """calls with arrays, tensors and `keras.Input`"""
    model = new_model()
    tensors = {name: keras.ops.convert_to_tensor(array) for name, array in INPUTS.items()}
    close(logits(model, tensors), logits(model))
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS}
    assert model(inputs).shape == (None, None, 17)
    again = keras.Model(inputs, model(inputs))
    same_logits(again, model)
    assert model.compute_output_spec(inputs).shape == (None, None, 17)
    assert keras.backend.standardize_dtype(model.compute_output_spec(inputs).dtype) == "float32"


@row(PARTS, Lacking("does not have a `compute_output_shape` method", "not in Keras"))
def output_shape() -> None:
    """`compute_output_shape` of a subclass of `keras.Model`"""
    new_model().compute_output_shape({name: array.shape for name, array in INPUTS.items()})


@row(PARTS)
def parts() -> None:
    """`summary`, `layers`, `get_layer`, `count_params`, `get_weights`, `set_weights`"""
    lines: list[str] = []
    model = tfk.Transformer(CONFIG)
    model.summary(print_fn=lambda line, line_break=False: lines.append(line))
    assert model.get_layer("encoder") is model.encoder
    assert model.get_layer(index=0) is model.layers[0]
    assert model.count_params() == sum(w.size for w in model.get_weights())
    assert f"{model.count_params():,}" in "\n".join(lines)
    other = new_model()
    model.set_weights(other.get_weights())
    same_logits(model, other)


@row(PARTS)
def functional() -> None:
    """a functional model around the model: `fit`, `.keras`"""
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS}
    model = keras.Model(inputs, keras.layers.Rescaling(2.0)(new_model()(inputs)))
    close(logits(model), 2 * logits(new_model()))
    history = fit(compiled(model), epochs=2)["loss"]
    assert history[1] < history[0]
    with folder() as path:
        model.save(f"{path}/m.keras")
        same_logits(keras.saving.load_model(f"{path}/m.keras"), model)


@row(PARTS)
def nested() -> None:
    """a subclass of `keras.Model` around the model"""

    class Scaled(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.model = new_model()

        def call(self, inputs: dict) -> object:
            return 2.0 * self.model(inputs)

    model = Scaled()
    close(logits(model), 2 * logits(new_model()))
    history = fit(compiled(model), epochs=2)["loss"]
    assert history[1] < history[0]


@row(PARTS)
def clone() -> None:
    """`clone_model`"""
    model = new_model()
    copy = keras.models.clone_model(model)
    copy.build()
    differ(logits(copy), logits(model))
    copy.set_weights(model.get_weights())
    same_logits(copy, model)


@row(FILES)
def config() -> None:
    """`get_config`, `from_config`, `to_json`, `model_from_json`, `get_build_config`"""
    model = new_model()
    for copy in (
        tfk.Transformer.from_config(model.get_config()),
        keras.models.model_from_json(model.to_json()),
    ):
        assert copy.config == model.config
        copy.build_from_config(model.get_build_config())
        copy.set_weights(model.get_weights())
        same_logits(copy, model)


@row(FILES)
def serialization() -> None:
    """`keras.saving.serialize_keras_object`, `deserialize_keras_object`"""
    for part in (
        new_model(),
        tfk.losses.LabelSmoothedCrossentropy(0.2),
        tfk.metrics.Perplexity(),
        tfk.metrics.TokenAccuracy(),
        tfk.schedules.InverseSquareRoot(0.01, 7),
        tfk.optimizers.Adam(0.01),
    ):
        record = json.loads(json.dumps(keras.saving.serialize_keras_object(part)))
        copy = keras.saving.deserialize_keras_object(record)
        assert type(copy) is type(part)
        assert copy.get_config() == part.get_config()


@row(FILES)
def keras_file() -> None:
    """`save`, `load_model` of `.keras`, with the optimizer's state"""
    model = compiled(optimizer=tfk.optimizers.Adam(0.01), metrics=[tfk.metrics.Perplexity()])
    fit(model, epochs=2)
    with folder() as path:
        model.save(f"{path}/m.keras")
        loaded = keras.saving.load_model(f"{path}/m.keras")
    same_logits(loaded, model)
    close(fit(loaded)["loss"], fit(model)["loss"])
    same_logits(loaded, model)


class OwnLogits(tfk.Transformer):
    """A subclass that is registered with Keras."""

    def logits(self, decoded: object) -> object:
        return 2.0 * super().logits(decoded)


@row(FILES)
def keras_file_of_subclass() -> None:
    """`.keras` of a registered subclass"""
    keras.saving.register_keras_serializable("tests")(OwnLogits)
    model = new_model(OwnLogits)
    with folder() as path:
        model.save(f"{path}/m.keras")
        loaded = keras.saving.load_model(f"{path}/m.keras")
    assert type(loaded) is OwnLogits
    same_logits(loaded, model)


@row(FILES)
def weights_file() -> None:
    """`save_weights`, `load_weights`, also of a model that is not built yet"""
    model = new_model()
    with folder() as path:
        model.save_weights(f"{path}/m.weights.h5")
        other = tfk.Transformer(CONFIG)
        other.load_weights(f"{path}/m.weights.h5")
    same_logits(other, model)


@row(FILES)
def weights_of_other_sizes() -> None:
    """`load_weights(skip_mismatch=True)`"""
    model = new_model()
    wider = new_model(config=CONFIG.model_copy(update={"target_vocab_size": 19}))
    before = numpy(wider.projection.kernel)
    with folder() as path:
        model.save_weights(f"{path}/m.weights.h5")
        wider.load_weights(f"{path}/m.weights.h5", skip_mismatch=True)
    close(numpy(wider.projection.kernel), before)
    for ours, theirs in zip(wider.encoder.weights, model.encoder.weights, strict=True):
        close(numpy(ours), numpy(theirs))


TF_ONLY = Lacking("", "TensorFlow only")


@row(FILES, jax=TF_ONLY, torch=TF_ONLY)
def checkpoint() -> None:
    """`tf.train.Checkpoint`"""
    import tensorflow as tf

    if BACKEND != "tensorflow":
        raise NotImplementedError
    model, other = new_model(), tfk.Transformer(CONFIG)
    other.build()
    with folder() as path:
        saved = tf.train.Checkpoint(model=model).save(f"{path}/c")
        status = tf.train.Checkpoint(model=other).restore(saved)
        status.assert_existing_objects_matched()
    same_logits(other, model)


@row(FILES, jax=TF_ONLY, torch=TF_ONLY)
def saved_model() -> None:
    """`tf.saved_model.save`"""
    import tensorflow as tf

    if BACKEND != "tensorflow":
        raise NotImplementedError
    model = new_model()
    with folder() as path:
        tf.saved_model.save(model, path)
        run = tf.saved_model.load(path).signatures["serving_default"]
        names = run.structured_input_signature[1]  # "inputs" and "inputs_1"
        arrays = dict(zip(sorted(names), INPUTS.values(), strict=True))
        outputs = run(**{name: tf.constant(array) for name, array in arrays.items()})
    close(next(iter(outputs.values())), logits(model))


NEEDS_SHAPES = Refused("input_signature: expected fixed shapes with PyTorch, got .*")


@row(EXPORT, torch=Refused("format: expected .*"))
def export_saved_model() -> None:
    """`tf_saved_model`"""
    import tensorflow as tf

    model = new_model()
    with folder() as path:
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
    with folder() as path:
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
    with folder() as path:
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
    with folder() as path:
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
    with folder() as path:
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
    with folder() as path:
        archive = keras.export.ExportArchive()
        archive.track(model)
        spec = {n: keras.InputSpec("int32", shape=(None, None), name=n) for n in INPUTS}
        archive.add_endpoint("serve", model.call, input_signature=[spec])
        archive.write_out(path, verbose=False)
        import tensorflow as tf

        loaded = tf.saved_model.load(path)
        close(loaded.serve({n: tf.constant(a) for n, a in INPUTS.items()}), logits(model), 1e-4)


def _half_precision(dtype: str, tolerance: float) -> None:
    model, exact = new_model(dtype=dtype), new_model()
    model.set_weights(exact.get_weights())
    actual = keras.backend.standardize_dtype(model(INPUTS).dtype)
    if actual != dtype.removeprefix("mixed_"):
        raise TypeError(f"expected {dtype}, got {actual}")
    assert {w.dtype for w in model.trainable_weights} == {
        "float32" if dtype.startswith("mixed_") else dtype
    }
    close(logits(model), logits(exact), tolerance)
    history = fit(compiled(model), epochs=3)["loss"]
    close(history, fit_losses(3), tolerance)


@row(PRECISION)
def mixed_float16() -> None:
    """`dtype="mixed_float16"`"""
    _half_precision("mixed_float16", 0.01)


@row(PRECISION)
def mixed_bfloat16() -> None:
    """`dtype="mixed_bfloat16"`"""
    _half_precision("mixed_bfloat16", 0.05)


@row(PRECISION)
def float16() -> None:
    """`dtype="float16"`"""
    _half_precision("float16", 0.02)


@row(PRECISION)
def bfloat16() -> None:
    """`dtype="bfloat16"`"""
    _half_precision("bfloat16", 0.06)


@row(
    PRECISION,
    jax=Lacking("got float32", "JAX has it with `jax_enable_x64` only"),
    torch=Lacking("got float32", "products of Keras are float32"),
)
def float64() -> None:
    """`dtype="float64"`"""
    _half_precision("float64", 1e-5)


@row(PRECISION)
def global_policy() -> None:
    """`keras.config.set_dtype_policy`"""
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        model = new_model()
    finally:
        keras.config.set_dtype_policy(before)
    assert model.dtype_policy.name == model.encoder.dtype_policy.name == "mixed_bfloat16"
    same_logits(model, new_model(dtype="mixed_bfloat16"))


def _quantized(mode: str, tolerance: float) -> keras.Model:
    model = new_model()
    exact = logits(model)
    model.quantize(mode)
    quantized = logits(model)
    differ(quantized + 2e-3 * (mode == "float8"), exact)
    assert np.abs(quantized - exact).max() < tolerance * np.abs(exact).max()
    return model


@row(PRECISION)
def quantize_int8() -> None:
    """`quantize("int8")`"""
    _quantized("int8", 0.1)


@row(PRECISION)
def quantize_int4() -> None:
    """`quantize("int4")`"""
    _quantized("int4", 0.8)


@row(PRECISION)
def quantize_float8() -> None:
    """`quantize("float8")`, `fit`"""
    history = fit(compiled(_quantized("float8", 0.3)), epochs=3)["loss"]
    assert history[2] < history[0]


@row(PRECISION)
def quantized_keras_file() -> None:
    """`quantize("int8")`, then `.keras`"""
    model = _quantized("int8", 0.1)
    with folder() as path:
        model.save(f"{path}/m.keras")
        same_logits(keras.saving.load_model(f"{path}/m.keras"), model)


@row(PRECISION)
def quantized_weights_file() -> None:
    """`quantize("int8")`, then `save_weights`, `load_weights` into a quantized model"""
    model = _quantized("int8", 0.1)
    other = keras.models.clone_model(new_model())
    other.build()
    other.quantize("int8")
    with folder() as path:
        model.save_weights(f"{path}/m.weights.h5")
        other.load_weights(f"{path}/m.weights.h5")
    same_logits(other, model)


@row(PRECISION)
def lora() -> None:
    """`enable_lora` of the model's Keras layers: only the additions train"""
    model = new_model()
    model.source_embedding.enable_lora(2)
    for stack in (model.encoder, model.decoder):
        stack.layers[0].feed_forward.inner.enable_lora(2)
        stack.layers[0].feed_forward.outer.enable_lora(2)
    table = numpy(model.named_weights["source_embedding/embeddings"])
    before = logits(model)
    history = fit(compiled(model), epochs=3)["loss"]
    assert history[2] < history[0]
    close(numpy(model.named_weights["source_embedding/embeddings"]), table, 0)
    differ(logits(model), before)


@row(PRECISION)
def lora_keras_file() -> None:
    """`enable_lora`, then `.keras`"""
    model = new_model()
    model.source_embedding.enable_lora(2)
    fit(compiled(model), epochs=2)
    with folder() as path:
        model.save(f"{path}/m.keras")
        same_logits(keras.saving.load_model(f"{path}/m.keras"), model)


@row(PRECISION, Refused(".*enable_lora.*"))
def lora_attention() -> None:
    """`enable_lora` of `MultiHeadAttention`"""
    new_model().encoder.layers[0].attention.enable_lora(2)


JAX_ONLY = Lacking("", "JAX only")


@row(DEVICES, torch=Lacking(""))
def data_parallel() -> None:
    """several devices: `MirroredStrategy`, `keras.distribution.DataParallel`"""
    if BACKEND == "torch":
        raise NotImplementedError
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            model = compiled()
        data = tf.data.Dataset.from_tensor_slices((INPUTS, LABELS)).batch(6)
        close(fit(model, data, epochs=2)["loss"], fit_losses(), 1e-4)
        return
    with _distribution(keras.distribution.DataParallel(auto_shard_dataset=False)):
        model = compiled()
        close(fit(model, epochs=2)["loss"], fit_losses(), 1e-4)
        import jax

        assert len(jax.devices()) == 2
        assert len(model.projection.kernel.value.devices()) == 2


@contextlib.contextmanager
def _distribution(distribution: object) -> Iterator[None]:
    fit_losses()
    keras.distribution.set_distribution(distribution)
    try:
        yield
    finally:
        keras.distribution.set_distribution(None)


@row(DEVICES, tensorflow=JAX_ONLY, torch=JAX_ONLY)
def model_parallel() -> None:
    """`keras.distribution.ModelParallel`"""
    if BACKEND != "jax":
        raise NotImplementedError
    mesh = keras.distribution.DeviceMesh((1, 2), ["batch", "model"])
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*embedding/embeddings"] = (None, "model")
    layout[".*outer/kernel"] = (None, "model")
    with _distribution(keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")):
        model = compiled()
        close(fit(model, epochs=2)["loss"], fit_losses(), 1e-4)
        shards = model.source_embedding.embeddings.value.addressable_shards
    assert [shard.data.shape for shard in shards] == [(13, 6)] * 2
