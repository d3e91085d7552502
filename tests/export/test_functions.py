"""Every exported TensorFlow function is made from its signature in one way."""

import numpy as np
import pytest
import tensorflow as tf

from tfk_transformer.export.to_saved_model.writer import (
    SLOW_PASSES,
    without_graph_optimizer,
)
from tfk_transformer.inference.signatures import Signature, TensorSignature
from tfk_transformer.search.signature_functions import tf_function

ROWS, FACTOR = (
    TensorSignature("rows", "float32", ("N", 3)),
    TensorSignature("factor", "float32", ()),
)
SIGNATURE = Signature((ROWS, FACTOR), (TensorSignature("product", "float32", ("N", 3)),))


def test_tf_function_follows_signature():
    function = tf_function(
        lambda rows, factor: {"unused": rows, "product": rows * factor}, SIGNATURE, {"factor": 5.0}
    )
    rows = np.array([[1.0, 2.0, 7.0]], "float32")
    assert list(function(rows)) == ["product"]
    np.testing.assert_array_equal(function(rows)["product"], 5 * rows)
    np.testing.assert_array_equal(function(rows, factor=tf.constant(2.0))["product"], 2 * rows)
    concrete = function.get_concrete_function()
    assert [(tensor.name, tensor.shape.as_list()) for tensor in concrete.inputs] == [
        ("rows:0", [None, 3]),
        ("factor:0", []),
    ]


@pytest.mark.parametrize("is_large", [False, True])
def test_graph_optimizer_is_restored(is_large):
    """For a large model, the pass that folds transpositions stays."""
    read = tf.config.optimizer.get_experimental_options
    with without_graph_optimizer(is_large):
        inside = read()
    assert inside.get("disable_meta_optimizer", False) is not is_large
    assert inside.get("constant_folding", True) is not is_large
    assert inside.get("arithmetic_optimization", True)
    restored = read()
    assert restored["disable_meta_optimizer"] is False
    assert all(restored.get(name, True) for name in SLOW_PASSES)
