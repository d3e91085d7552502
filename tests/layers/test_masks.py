import numpy as np
from keras import ops

from tfk_transformer.layers.masks import additive_mask, beam_mask, causal_mask, padding_mask


def test_padding_mask_hides_zeros():
    mask = ops.convert_to_numpy(padding_mask(np.array([[7, 5, 0], [6, 0, 0]])))
    np.testing.assert_array_equal(
        mask, np.array([[[[0, 0, -1e9]]], [[[0, -1e9, -1e9]]]], "float32")
    )
    assert mask.dtype == np.float32


def test_mask_of_ones_equals_ids():
    ids = np.array([[7, 5, 0], [6, 0, 0]])
    for real in (ids != 0, (ids != 0).astype("int32"), (ids != 0).astype("float32")):
        np.testing.assert_array_equal(additive_mask(real), padding_mask(ids))


def test_causal_mask_hides_the_future():
    expected = np.array([[[[0, -1e9, -1e9], [0, 0, -1e9], [0, 0, 0]]]], "float32")
    mask = ops.convert_to_numpy(causal_mask(3))
    np.testing.assert_array_equal(mask, expected)
    assert mask.dtype == np.float32


def test_causal_mask_is_a_band_part():
    import tensorflow as tf

    graph = (
        tf.function(causal_mask, input_signature=[tf.TensorSpec([], tf.int32)])
        .get_concrete_function()
        .graph
    )
    assert "MatrixBandPart" in {operation.type for operation in graph.get_operations()}


def test_beam_mask_is_the_diagonal():
    expected = np.array([[[[0, -1e9, -1e9], [-1e9, 0, -1e9], [-1e9, -1e9, 0]]]], "float32")
    np.testing.assert_array_equal(beam_mask(3), expected)
