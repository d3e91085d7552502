import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_contract import assert_config_makes_the_same

from tfk_transformer.keras_internals import take_rows
from tfk_transformer.layers.vocabulary_projection import Embedding

IDS = np.array([[4, 1, 1], [1, 0, 2]], "int32")


def made(layer_class=Embedding, **options):
    layer = layer_class(5, 3, **options)
    layer.build()
    layer.set_weights([np.random.default_rng(1).normal(size=(5, 3))])
    return layer


def test_rows_equal_those_of_keras():
    np.testing.assert_array_equal(made()(IDS), made(keras.layers.Embedding)(IDS))
    assert made(dtype="mixed_bfloat16")(IDS).dtype == "bfloat16"
    assert_config_makes_the_same(made(name="source"))


def test_gradient_is_dense():
    table = tf.Variable(np.random.default_rng(1).normal(size=(5, 3)))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(take_rows(table, IDS) ** 2)
    gradient = tape.gradient(total, table)
    assert isinstance(gradient, tf.Tensor)
    uses = np.array([1, 3, 1, 0, 1])
    np.testing.assert_allclose(gradient, 2 * table.numpy() * uses[:, None])


@pytest.mark.parametrize("clipnorm", [None, 0.1])
def test_adam_uses_sums_of_repeated_rows(clipnorm):
    """The first steps of Adam, and of clipping by norm, from the gradient written out."""
    model = keras.Sequential([made()])
    optimizer = keras.optimizers.Adam(0.1, epsilon=0.3, global_clipnorm=clipnorm)
    model.compile(optimizer, "mse", jit_compile=False)
    before = model.get_weights()[0].astype("float64")
    gradient = np.zeros_like(before)
    np.add.at(gradient, IDS, 2 * before[IDS] / (IDS.size * 3))
    model.fit(IDS, np.zeros((2, 3, 3)), verbose=0)
    if clipnorm:
        gradient *= clipnorm / np.sqrt((gradient**2).sum())
    # The moments are (1 - beta) times the gradient and its square, without their bias themselves.
    scale = np.sqrt(1 - 0.999)
    update = 0.1 * gradient / (np.abs(gradient) + 0.3 / scale)
    np.testing.assert_allclose(before - model.get_weights()[0], update, rtol=2e-5, atol=2e-7)
