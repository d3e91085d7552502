"""Check that a layer meets the contract of Keras, and that any object can be made again from its
configuration.

As in keras-hub's `test_case.py`, one helper replaces the checks that every layer's tests would
otherwise repeat.
"""

import inspect
import json
from tempfile import TemporaryDirectory

import keras
import numpy as np

# With the greatest difference from float32, for outputs of about 1.
POLICIES = {"mixed_bfloat16": 0.1, "mixed_float16": 0.02}


def assert_config_makes_the_same(original):
    """Check that an object can be made again from its configuration as JSON, under its registered
    name; return the copy.
    """
    original_class = type(original)
    serialized = keras.saving.serialize_keras_object(original)
    assert serialized["registered_name"] == f"tfk_transformer>{original_class.__name__}"
    copy = keras.saving.deserialize_keras_object(json.loads(json.dumps(serialized)))
    assert type(copy) is original_class
    assert copy.get_config() == original.get_config()
    assert original_class.from_config(original.get_config()).get_config() == original.get_config()
    return copy


def run_layer_test(layer_class, arguments, inputs, output_shape, weights, masks=None):
    """Check a layer's configuration, weights, symbolic and eager call, training, mixed precision,
    and saved file.

    Args:
        layer_class: the class of the layer.
        arguments: of its constructor, none of them a default.
        inputs: float32 arrays (batch, length, width) by the name of the argument of `call`; each
            length may become unknown.
        output_shape: the shape of the output, or of the first field of several.
        weights: the shape of each weight by the end of its path.
        masks: boolean arrays by the name of the argument of `call`.
    """
    _check_config(layer_class, arguments)
    layer = _check_build(layer_class, arguments, inputs, weights)
    arrays = {**inputs, **(masks or {})}
    _check_calls(layer, inputs, arrays, output_shape)
    _check_precision(layer_class, arguments, layer, arrays)
    _check_fit_and_file(layer, arrays)


def _check_config(layer_class, arguments):
    layer = layer_class(**arguments, name="named", dtype="mixed_bfloat16", trainable=False)
    taken = [
        name
        for name, p in inspect.signature(layer_class.__init__).parameters.items()
        if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    config = layer.get_config()
    assert set(taken) - {"self"} <= set(config)
    plain = {name: value for name, value in arguments.items() if name != "options"}
    assert {name: config[name] for name in plain} == plain
    copy = assert_config_makes_the_same(layer)
    assert (copy.name, copy.dtype_policy.name, copy.trainable) == ("named", "mixed_bfloat16", False)


def _check_build(layer_class, arguments, inputs, weights):
    shapes = {name: (None, None, array.shape[-1]) for name, array in inputs.items()}
    first = next(iter(shapes.values()))
    built, called = layer_class(**arguments), layer_class(**arguments)
    built.build(first)
    called(**inputs)
    for layer in (built, called):
        assert layer.built
        assert _shapes(layer) == weights
        assert {weight.dtype for weight in layer.trainable_weights} <= {"float32"}
    random = np.random.default_rng(0)
    built.set_weights(
        [random.normal(0, 0.3, weight.shape).astype(weight.dtype) for weight in built.weights]
    )
    return built


def _shapes(layer):
    """Return each trainable weight's shape by its path below the layer."""
    return {
        weight.path.partition("/")[2]: tuple(weight.shape) for weight in layer.trainable_weights
    }


def _output(result):
    return result.output if hasattr(result, "output") else result


def _shape(tensor):
    """Return its shape; None for what a layer does not have, such as the weights of
    cross-attention.
    """
    return None if tensor is None else tuple(tensor.shape)


def _check_calls(layer, inputs, arrays, output_shape):
    output = _output(layer(**arrays))
    assert tuple(output.shape) == output_shape
    assert np.isfinite(np.asarray(output)).all()
    specs = {name: keras.KerasTensor(array.shape, array.dtype) for name, array in arrays.items()}
    symbolic = layer.compute_output_spec(**specs)
    actual, expected = (
        keras.tree.map_structure(_shape, result) for result in (symbolic, layer(**arrays))
    )
    assert actual == expected
    assert keras.backend.standardize_dtype(
        _output(symbolic).dtype
    ) == keras.backend.standardize_dtype(output.dtype)
    unknown = {
        name: keras.KerasTensor((None, None, array.shape[-1]), array.dtype)
        for name, array in inputs.items()
    }
    assert _output(layer.compute_output_spec(**unknown)).shape == (None, None, output_shape[-1])
    first = next(iter(inputs.values()))
    assert tuple(layer.compute_output_shape((None, None, first.shape[-1]))) == (
        None,
        None,
        output_shape[-1],
    )


def _check_precision(layer_class, arguments, layer, arrays):
    exact = np.asarray(
        _output(layer(**arrays, training=False) if _trains(layer) else layer(**arrays))
    )
    for policy, tolerance in POLICIES.items():
        half = layer_class(**arguments, dtype=policy)
        half.build((None, None, next(iter(arrays.values())).shape[-1]))
        half.set_weights(layer.get_weights())
        output = _output(half(**arrays))
        assert keras.backend.standardize_dtype(output.dtype) == policy.removeprefix("mixed_")
        assert {weight.dtype for weight in half.trainable_weights} <= {"float32"}
        scale = max(1.0, np.abs(exact).max())
        np.testing.assert_allclose(keras.ops.cast(output, "float32"), exact, atol=tolerance * scale)


def _trains(layer):
    return "training" in inspect.signature(layer.call).parameters


@keras.saving.register_keras_serializable(package="tests")
class Holder(keras.Model):
    """A model of one layer, which is called with a dictionary of its arguments."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, input_shape):
        if not self.layer.built:
            self.layer.build(tuple(next(iter(input_shape.values()))))

    def call(self, inputs):
        return _output(self.layer(**inputs))

    def get_config(self):
        return {**super().get_config(), "layer": keras.saving.serialize_keras_object(self.layer)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "layer": keras.saving.deserialize_keras_object(config["layer"])})


def _model(layer, arrays):
    """Return a functional model of the layer, or where it returns None in a field, which Keras does
    not allow there, a subclass.
    """
    if None in keras.tree.flatten(keras.tree.map_structure(_none_or_zero, layer(**arrays))):
        return Holder(layer)
    symbolic = {
        name: keras.Input(array.shape[1:], dtype=str(array.dtype), name=name)
        for name, array in arrays.items()
    }
    return keras.Model(symbolic, _output(layer(**symbolic)))


def _none_or_zero(tensor):
    return None if tensor is None else 0


def _check_fit_and_file(layer, arrays):
    """Train the layer inside a model, then save the model and load it."""
    model = _model(layer, arrays)
    if layer.trainable_weights:
        _check_fit(layer, model, arrays)
    with TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        loaded = keras.saving.load_model(f"{folder}/model.keras")
    np.testing.assert_allclose(loaded(arrays), model(arrays), atol=1e-6)


def _check_fit(layer, model, arrays):
    target = np.random.default_rng(9).normal(size=_output(layer(**arrays)).shape).astype("float32")
    model.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)  # otherwise the step is traced twice
    before = {weight.path: np.asarray(weight) for weight in layer.trainable_weights}
    assert np.isfinite(model.fit(arrays, target, epochs=2, verbose=0).history["loss"]).all()
    # A softmax does not change when every key moves alike, so biases of keys have no gradient.
    still = [
        w.path
        for w in layer.trainable_weights
        if (np.asarray(w) == before[w.path]).all() and not w.path.endswith("key_bias")
    ]
    assert still == []
