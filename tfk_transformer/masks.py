"""Additive attention masks, made from ids: 0 keeps a position, -1e9 hides it.

Masks are float32 whatever the compute dtype: -1e9 does not exist in float16. They are made here alone and handed to
the layers as tensors; Keras's implicit masks are not used, since they are lost silently along the way.
"""

import keras
from keras import ops

from tfk_transformer.config import PAD_ID

HIDDEN = -1e9


def padding_mask(ids):
    """Hide padding from every query.

    Args:
        ids: integers (B, S), 0 for padding.

    Returns:
        float32 (B, 1, 1, S), to be added to attention scores (B, H, T, S).
    """
    hidden = ops.cast(ops.equal(ids, PAD_ID), "float32") * HIDDEN
    return hidden[:, None, None, :]


def causal_mask(length):
    """Hide the future: query t sees the keys 0..t.

    Args:
        length: T, a Python integer or a scalar integer tensor.

    Returns:
        float32 (1, 1, T, T).
    """
    ones = ops.ones((length, length), dtype="float32")
    return ((1.0 - _lower_triangle(ones)) * HIDDEN)[None, None, :, :]


def _lower_triangle(matrix):
    """Keep the diagonal and what is below it: `tf.linalg.band_part` under TensorFlow, so that exports show MatrixBandPart."""
    if keras.backend.backend() != "tensorflow":
        return ops.tril(matrix)
    import tensorflow as tf

    return tf.linalg.band_part(matrix, -1, 0)
