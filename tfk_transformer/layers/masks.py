"""Additive attention masks, made from ids or padding masks: 0 keeps a position, -1e9 hides it.

Masks are float32 whatever the compute dtype: -1e9 does not exist in float16. They are made here alone and handed to
the layers as tensors; Keras's implicit masks are not used, since they are lost silently along the way. Nor is a score
ever multiplied by 0 to hide it: a softmax gives a score of 0 the weight exp(0) before it is normalised, and not none.
"""

import keras
from keras import ops

from tfk_transformer.constants import PAD_ID

HIDDEN = -1e9


def padding_mask(ids):
    """Hide padding from every query.

    Args:
        ids: integers (B, S), 0 for padding.

    Returns:
        float32 (B, 1, 1, S), to be added to attention scores (B, H, T, S).
    """
    return additive_mask(ops.not_equal(ids, PAD_ID))


def additive_mask(real):
    """Hide from every query what a padding mask marks.

    Args:
        real: (B, S), 1 or True for a real token, 0 or False for padding.

    Returns:
        float32 (B, 1, 1, S), to be added to attention scores (B, H, T, S).
    """
    return ((1.0 - ops.cast(real, "float32")) * HIDDEN)[:, None, None, :]


def causal_mask(length):
    """Hide the future: query t sees the keys 0..t.

    Args:
        length: T, a Python integer or a scalar integer tensor.

    Returns:
        float32 (1, 1, T, T).
    """
    ones = ops.ones((length, length), dtype="float32")
    return ((1.0 - _lower_triangle(ones)) * HIDDEN)[None, None, :, :]


def own_mask(beams):
    """Hide from each beam of a sentence what the others say at the same position.

    Args:
        beams: M, a Python integer or a scalar integer tensor.

    Returns:
        float32 (1, 1, M, M).
    """
    places = ops.arange(beams)
    return (ops.cast(ops.not_equal(places[:, None], places[None, :]), "float32") * HIDDEN)[None, None, :, :]


def _lower_triangle(matrix):
    """Keep the diagonal and what is below it: `tf.linalg.band_part` under TensorFlow, so that exports show MatrixBandPart."""
    if keras.backend.backend() != "tensorflow":
        return ops.tril(matrix)
    import tensorflow as tf

    return tf.linalg.band_part(matrix, -1, 0)
