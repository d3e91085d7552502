"""Rows of the table of Keras's methods: the public layers, as `keras.layers.Layer`."""

import json
import tempfile
import warnings
from collections.abc import Callable

import keras
import numpy as np
from keras_surface_rows import (
    BACKEND,
    INPUTS,
    Refused,
    close,
    differ,
    numpy,
    row,
)

import tfk_transformer as tfk

LAYERS = "layers"
OPTIONS = tfk.LayerOptions(model_dim=12, num_heads=2, ff_dim=11, dropout=0.0)
_random = np.random.default_rng(3)
X = _random.normal(size=(3, 5, 12)).astype("float32")
MEMORY = _random.normal(size=(3, 7, 12)).astype("float32")
# The layer, and the arguments of its call.
CASES: dict[str, tuple[Callable[..., keras.layers.Layer], tuple[np.ndarray, ...]]] = {
    "MultiHeadAttention": (lambda **k: tfk.layers.MultiHeadAttention(2, 6, **k), (X, MEMORY)),
    "FeedForward": (lambda **k: tfk.layers.FeedForward(11, **k), (X,)),
    "EncoderLayer": (lambda **k: tfk.layers.EncoderLayer(OPTIONS, **k), (X,)),
    "Encoder": (lambda **k: tfk.layers.Encoder(OPTIONS, 2, **k), (X,)),
    "DecoderLayer": (
        lambda **k: tfk.layers.DecoderLayer(OPTIONS, cross_attention=False, **k),
        (X,),
    ),
    "Decoder": (lambda **k: tfk.layers.Decoder(OPTIONS, 2, **k), (X, MEMORY)),
}


def output_of(result: object) -> object:
    """Return the field `output` of a result, or the result."""
    return result.output if hasattr(result, "output") else result


def made() -> list[tuple[str, Callable, tuple, keras.layers.Layer]]:
    """Return each case with a layer that is built by a call."""
    cases = []
    for name, (make, arguments) in CASES.items():
        keras.utils.set_random_seed(2)
        layer = make()
        layer(*arguments)
        cases.append((name, make, arguments, layer))
    return cases


@row(LAYERS)
def layer_calls() -> None:
    """`build`, calls with arrays and `keras.Input`, `compute_output_shape`"""
    for _, make, arguments, layer in made():
        built = make()
        built.build(X.shape)
        assert [w.shape for w in built.weights] == [w.shape for w in layer.weights]
        output = output_of(layer(*arguments))
        assert tuple(output.shape) == X.shape
        assert tuple(layer.compute_output_shape(X.shape)) == X.shape
        inputs = [keras.Input(array.shape[1:]) for array in arguments]
        symbolic = output_of(layer(*inputs))
        assert symbolic.shape == (None, 5, 12)
        close(numpy(keras.Model(inputs, symbolic)(list(arguments))), numpy(output))


@row(LAYERS)
def layer_configs() -> None:
    """`get_config`, `from_config`, `keras.saving`, `get_weights`, `set_weights`, `count_params`"""
    for _, _, arguments, layer in made():
        record = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        for copy in (
            type(layer).from_config(layer.get_config()),
            keras.saving.deserialize_keras_object(record),
        ):
            copy(*arguments)
            copy.set_weights(layer.get_weights())
            close(numpy(output_of(copy(*arguments))), numpy(output_of(layer(*arguments))))
            assert copy.count_params() == layer.count_params() > 0


@row(LAYERS)
def layer_state() -> None:
    """`trainable`, `losses`, `add_loss`, `stateless_call`"""
    for _, _, arguments, layer in made():
        state = [[v.value for v in layer.trainable_variables], []]
        result, _ = layer.stateless_call(*state, *arguments)
        close(numpy(output_of(result)), numpy(output_of(layer(*arguments))))
        layer.add_loss(keras.ops.convert_to_tensor(3.0))
        assert [float(loss) for loss in layer.losses] == [3.0]
        layer.trainable = False
        assert layer.trainable_variables == []
        assert layer.non_trainable_variables


_COMPILE = {"tensorflow": {"run_eagerly": True}, "jax": {}, "torch": {"jit_compile": False}}


@row(LAYERS)
def layer_files() -> None:
    """inside a functional model: `fit`, `.keras`"""
    for name, make, arguments, _ in made():
        inputs = [keras.Input(array.shape[1:]) for array in arguments]
        model = keras.Model(inputs, output_of(make()(*inputs)))
        target = np.zeros_like(X)
        # A step of TensorFlow that runs once takes less time than its trace.
        model.compile(keras.optimizers.SGD(0.01), "mse", **_COMPILE[BACKEND])
        history = model.fit(list(arguments), target, epochs=2, verbose=0).history["loss"]
        assert history[1] < history[0], name
        with tempfile.TemporaryDirectory() as path:
            model.save(f"{path}/m.keras")
            loaded = keras.saving.load_model(f"{path}/m.keras")
        close(numpy(loaded(list(arguments))), numpy(model(list(arguments))))


@row(LAYERS)
def layer_precision() -> None:
    """`dtype`: `mixed_float16`, `mixed_bfloat16`, `bfloat16`"""
    for name, make, arguments, layer in made():
        for dtype in ("mixed_float16", "mixed_bfloat16", "bfloat16"):
            half = make(dtype=dtype)
            half(*arguments)
            half.set_weights(layer.get_weights())
            output = output_of(half(*arguments))
            assert keras.backend.standardize_dtype(output.dtype) == dtype.removeprefix("mixed_")
            expected = numpy(output_of(layer(*arguments)))
            assert np.abs(numpy(output) - expected).max() < 0.06 * np.abs(expected).max(), name


@row(LAYERS)
def layer_quantization() -> None:
    """`quantize("int8")` of the `Dense` layers in `FeedForward` and `EncoderLayer`"""
    for name, _, arguments, layer in made():
        if name not in ("FeedForward", "EncoderLayer"):
            continue
        exact = numpy(output_of(layer(*arguments)))
        feed_forward = layer if name == "FeedForward" else layer.feed_forward
        feed_forward.inner.quantize("int8")
        feed_forward.outer.quantize("int8")
        quantized = numpy(output_of(layer(*arguments)))
        differ(quantized, exact)
        assert np.abs(quantized - exact).max() < 0.1 * np.abs(exact).max(), name


@row(LAYERS, Refused(".*quantize.*"))
def layer_quantize_attention() -> None:
    """`MultiHeadAttention.quantize("int8")`"""
    made()[0][-1].quantize("int8")


@row(LAYERS)
def layer_activity() -> None:
    """`activity_regularizer`"""
    for _, make, arguments, _ in made():
        layer = make(activity_regularizer=keras.regularizers.L2(0.1))
        result = layer(*arguments)
        total = sum(
            (numpy(each) ** 2).sum() for each in keras.tree.flatten(result) if each is not None
        )
        close(sum(float(loss) for loss in layer.losses), 0.1 * total / 3, 1e-4)


@row(LAYERS, Refused(r'Layer "dense" expects 1 input\(s\), but it received 2 input tensors'))
def layer_sequential() -> None:
    """`Sequential([Embedding, EncoderLayer, Dense])`: the result of a layer has several fields"""
    model = keras.Sequential(
        [
            keras.layers.Embedding(13, 12),
            tfk.layers.EncoderLayer(OPTIONS),
            keras.layers.Dense(17, name="dense"),
        ]
    )
    ids = INPUTS["source"]
    model(ids)


@row(LAYERS)
def layer_sequential_output_only() -> None:
    """the same with `EncoderLayer(options, output_only=True)`"""
    model = keras.Sequential(
        [
            keras.layers.Embedding(13, 12),
            tfk.layers.EncoderLayer(OPTIONS, output_only=True),
            keras.layers.Dense(17),
        ]
    )
    ids = INPUTS["source"]
    predictions = numpy(model(ids))
    assert predictions.shape == (6, 5, 17)
    expected = tfk.EncoderLayer.from_config({**model.layers[1].get_config(), "output_only": False})
    expected.build()
    expected.set_weights(model.layers[1].get_weights())
    close(predictions, numpy(model.layers[2](expected(model.layers[0](ids)).output)))


@row(LAYERS)
def layer_masks() -> None:
    """`Embedding(mask_zero=True)` in front of a layer: a warning that its mask is not used"""
    embedding = keras.layers.Embedding(13, 12, mask_zero=True)
    layer = tfk.layers.EncoderLayer(OPTIONS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer(embedding(INPUTS["source"]))
    assert not layer.supports_masking
    assert any("this layer does not support masking" in str(w.message) for w in caught)


@row(LAYERS)
def layer_causal_mask() -> None:
    """`causal_mask` of ids, of a length, of `ops.shape(ids)[1]`"""
    ids = INPUTS["target"]
    close(numpy(tfk.layers.causal_mask(ids)), numpy(tfk.layers.causal_mask(7)))
    close(numpy(tfk.layers.causal_mask(keras.ops.shape(ids)[1])), numpy(tfk.layers.causal_mask(7)))
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, tfk.layers.causal_mask(inputs))
    close(numpy(model(ids)), numpy(tfk.layers.causal_mask(7)))


@row(LAYERS)
def layer_decoder_only() -> None:
    """`Decoder(cross_attention=False)` in a functional model"""
    inputs = keras.Input((None, 12))
    layer = tfk.layers.Decoder(OPTIONS, 1, cross_attention=False)
    model = keras.Model(inputs, output_of(layer(inputs)))
    close(numpy(model(X)), numpy(output_of(layer(X))))


@row(LAYERS, Refused("(value|key|query|context|MultiHeadAttention).*: expected .*"))
def layer_attention_value() -> None:
    """`MultiHeadAttention(query, value=…)` as in Keras"""
    tfk.layers.MultiHeadAttention(2, 6)(X, value=MEMORY)


@row(LAYERS)
def layer_attention_width() -> None:
    """`MultiHeadAttention` with a context of another width"""
    layer = tfk.layers.MultiHeadAttention(2, 6)
    assert tuple(layer(X, MEMORY[..., :7]).output.shape) == X.shape
    assert layer.key_weight.shape == (2, 7, 6)


@row(
    LAYERS,
    Refused(
        "Input 0 with name 'x' of layer .* is incompatible with the layer: expected .* value 12"
    ),
)
def layer_width() -> None:
    """an input of another width than `LayerOptions.model_dim`"""
    tfk.layers.EncoderLayer(OPTIONS, name="layer")(X[..., :7])


@row(LAYERS)
def layer_rematerialized() -> None:
    """`rematerialized_call`"""
    for _, _, arguments, layer in made():
        again = layer.rematerialized_call(layer.call, *arguments)(*arguments)
        close(numpy(output_of(again)), numpy(output_of(layer(*arguments))))
