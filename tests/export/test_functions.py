"""Every exported TensorFlow function is made from its signature in one way."""

import numpy as np
import tensorflow as tf

from tfk_transformer.generation.signature_functions import tf_function
from tfk_transformer.inference.signatures import Signature, TensorSignature

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
