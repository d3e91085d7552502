"""Rows of the table of Keras's methods: the model and its parts, files and configurations."""

import json
import tempfile

import keras
from keras_surface_rows import (
    BACKEND,
    CONFIG,
    INPUTS,
    Lacking,
    close,
    compiled,
    differ,
    fit,
    logits,
    new_model,
    numpy,
    quick,
    row,
    same_logits,
)

import tfk_transformer as tfk

PARTS, FILES = "the model and its parts", "files and configurations"


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
    with tempfile.TemporaryDirectory() as path:
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
    model = quick(optimizer=tfk.optimizers.Adam(0.01), metrics=[tfk.metrics.Perplexity()])
    fit(model, epochs=2)
    with tempfile.TemporaryDirectory() as path:
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
    with tempfile.TemporaryDirectory() as path:
        model.save(f"{path}/m.keras")
        loaded = keras.saving.load_model(f"{path}/m.keras")
    assert type(loaded) is OwnLogits
    same_logits(loaded, model)


@row(FILES)
def weights_file() -> None:
    """`save_weights`, `load_weights`, also of a model that is not built yet"""
    model = new_model()
    with tempfile.TemporaryDirectory() as path:
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
    with tempfile.TemporaryDirectory() as path:
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
    with tempfile.TemporaryDirectory() as path:
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
    with tempfile.TemporaryDirectory() as path:
        tf.saved_model.save(model, path)
        run = tf.saved_model.load(path).signatures["serving_default"]
        names = run.structured_input_signature[1]  # "inputs" and "inputs_1"
        arrays = dict(zip(sorted(names), INPUTS.values(), strict=True))
        outputs = run(**{name: tf.constant(array) for name, array in arrays.items()})
    close(next(iter(outputs.values())), logits(model))
