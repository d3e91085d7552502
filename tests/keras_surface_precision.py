"""Rows of the table of Keras's methods: precision, quantization, LoRA, devices."""

import contextlib
import tempfile
from collections.abc import Iterator

import keras
import numpy as np
from keras_surface_rows import (
    BACKEND,
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
    quick,
    row,
    same_logits,
)

PRECISION, DEVICES = "precision, quantization, LoRA", "devices"


def _half_precision(dtype: str, tolerance: float) -> None:
    model, exact = new_model(dtype=dtype), new_model()
    model.set_weights(exact.get_weights())
    # XLA compiles each operation of another type that runs by itself.
    call = model.predict_on_batch if BACKEND == "jax" else model
    predictions = call(INPUTS)
    actual = keras.backend.standardize_dtype(predictions.dtype)
    if actual != dtype.removeprefix("mixed_"):
        raise TypeError(f"expected {dtype}, got {actual}")
    assert {w.dtype for w in model.trainable_weights} == {
        "float32" if dtype.startswith("mixed_") else dtype
    }
    close(numpy(predictions), logits(exact), tolerance)
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
    with tempfile.TemporaryDirectory() as path:
        model.save(f"{path}/m.keras")
        same_logits(keras.saving.load_model(f"{path}/m.keras"), model)


@row(PRECISION)
def quantized_weights_file() -> None:
    """`quantize("int8")`, then `save_weights`, `load_weights` into a quantized model"""
    model = _quantized("int8", 0.1)
    other = keras.models.clone_model(new_model())
    other.build()
    other.quantize("int8")
    with tempfile.TemporaryDirectory() as path:
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
    fit(quick(model), epochs=2)
    with tempfile.TemporaryDirectory() as path:
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
