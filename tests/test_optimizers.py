import keras
import numpy as np
import pytest

from tfk_transformer import optimizers

OPTIONS = {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3}


def weights_after(optimizer_class, more, steps=5, sparse=False):
    """Return weights and moments after steps with the same random gradients."""
    tf = pytest.importorskip("tensorflow")
    random = np.random.default_rng(0)
    variables = [
        keras.Variable(random.normal(size=shape).astype("float32")) for shape in ((6, 3), (4,))
    ]
    optimizer = optimizer_class(**OPTIONS, **more)

    @tf.function
    def step(first, second):
        rows = tf.constant([1, 4, 1])  # one of them twice
        slices = tf.IndexedSlices(first[:3], rows, first.shape)
        # Keras 3.15 squares and clips the gradients of a row that comes twice one by one, and not
        # their sum.
        first = slices if sparse == "slices" else tf.convert_to_tensor(slices) if sparse else first
        optimizer.apply([first, second], variables)

    optimizer.build(variables)
    for _ in range(steps):
        step(
            *(tf.constant(random.normal(size=variable.shape), tf.float32) for variable in variables)
        )
    return [np.asarray(value) for value in (*variables, *optimizer.variables)]


@pytest.mark.parametrize(
    ("name", "more", "sparse"),
    [
        ("Adam", {}, False),
        ("Adam", {}, True),
        ("AdamW", {}, True),
        ("Adam", {"global_clipnorm": 0.5}, True),
        ("Adam", {"gradient_accumulation_steps": 2}, True),
        ("Adam", {"use_ema": True, "ema_momentum": 0.9}, True),
        ("Adam", {"amsgrad": True}, True),
        ("AdamW", {"amsgrad": True, "global_clipnorm": 0.5}, False),
    ],
)
def test_optimizers_match_keras(name, more, sparse):
    ours = weights_after(getattr(optimizers, name), more, sparse="slices" if sparse else False)
    theirs = weights_after(getattr(keras.optimizers, name), more, sparse=sparse)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def test_schedule_and_loss_scaling():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    actual = []
    for optimizer_class in (optimizers.Adam, keras.optimizers.Adam):
        model = keras.Sequential([keras.layers.Dense(2, dtype="mixed_float16")])
        model.build((None, 3))
        model.set_weights([np.full((3, 2), 0.5), np.zeros(2)])
        model.compile(
            keras.optimizers.LossScaleOptimizer(optimizer_class(schedule)), "mse", jit_compile=False
        )
        model.fit(np.ones((8, 3)), np.ones((8, 2)), epochs=4, verbose=0)
        actual.append(model.get_weights())
    for one, other in zip(*actual, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_optimizer_config_round_trip():
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(optimizers.AdamW(0.3, weight_decay=0.2))
    )
    assert (type(copy), copy.weight_decay) == (optimizers.AdamW, 0.2)
