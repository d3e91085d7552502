"""Attention masks from ids or padding masks.

The masks are additive: 0 for a visible position and -1e9 for a hidden one. They are float32
whatever the compute dtype, because -1e9 does not exist in float16. Models pass them to their layers
as arguments: Keras's implicit masks are lost silently wherever a layer does not pass them on.
"""

import keras
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import PAD_ID

HIDDEN = -1e9


def padding_mask(ids: Tensor) -> Tensor:
    """Return a mask that hides padding from every query.

    Args:
        ids: integers (B, S), 0 for padding.

    Returns:
        float32 (B, 1, 1, S), to be added to attention scores (B, H, T, S).
    """
    return additive_mask(ops.not_equal(ids, PAD_ID))


def additive_mask(real: Tensor) -> Tensor:
    """Return a mask that hides padding from every query, float32 (B, 1, 1, S).

    `real` (B, S) is 1 or True for a token, 0 or False for padding.
    """
    hidden = (1.0 - ops.cast(real, "float32")) * HIDDEN
    # Not [:, None, None, :], which LiteRT could run only with an operator of TensorFlow. The cast
    # changes nothing: Keras takes the product of a symbolic tensor and a number for sparse.
    return ops.cast(ops.expand_dims(hidden, axis=(1, 2)), "float32")


def causal_mask(length: Tensor) -> Tensor:
    """Return a mask that hides the future: query t sees the keys 0 to t.

    Args:
        length: T, a Python integer or a scalar integer tensor; or ids (B, T), also those of a
            `keras.Input`, whose length is unknown.

    Returns:
        float32 (1, 1, T, T).

    Raises:
        ValueError: if `length` is None, as the length of a `keras.Input` is.
    """
    if length is None:
        raise ValueError(
            "length: expected an integer, a scalar tensor, or ids (B, T), got None; pass the ids "
            "themselves: causal_mask(ids)."
        )
    if isinstance(length, keras.KerasTensor):
        ones = ops.max(ops.ones_like(length), axis=0, keepdims=True)  # (1, T)
        positions = ops.cumsum(ones, axis=1)
        hidden = ops.greater(ops.expand_dims(positions, 1), ops.expand_dims(positions, 2))
        return ops.where(ops.expand_dims(hidden, 1), HIDDEN, 0.0)
    if len(getattr(length, "shape", ())) == 2:
        length = ops.shape(length)[1]
    lower = ops.ones((length, length), dtype="float32")
    if keras.backend.backend() == "tensorflow":  # so that exports contain MatrixBandPart
        import tensorflow as tf

        lower = tf.linalg.band_part(lower, -1, 0)
    else:
        lower = ops.tril(lower)
    return ops.expand_dims((1.0 - lower) * HIDDEN, axis=(0, 1))


def beam_mask(beams: Tensor) -> Tensor:
    """Return a mask that shows each of M beams only its own token at a position: (1, 1, M, M)."""
    indices = ops.arange(beams)
    different = ops.not_equal(indices[:, None], indices[None, :])
    return (ops.cast(different, "float32") * HIDDEN)[None, None, :, :]


def as_additive(attention_mask: Tensor) -> Tensor:
    """Convert a mask to floats that are added to attention scores.

    Floats, broadcastable to (B, H, T, S), are returned unchanged. Booleans are True for a visible
    position, as in `keras.layers.MultiHeadAttention`, and have the shape (T, S), (B, T, S) or one
    broadcastable to (B, H, T, S). Integers are refused: they could mean either.
    """
    dtype = keras.backend.standardize_dtype(attention_mask.dtype)
    if dtype == "bool":
        hidden = (1.0 - ops.cast(attention_mask, "float32")) * HIDDEN
        # (B, T, S) -> (B, 1, T, S)
        return ops.expand_dims(hidden, axis=-3) if len(attention_mask.shape) == 3 else hidden
    if "float" not in dtype:
        raise ValueError(
            "attention_mask: expected booleans (True for a visible position) or floats that are "
            f"added to the scores, got {dtype}; convert a mask of ones and zeros with "
            "astype(bool)."
        )
    return attention_mask
