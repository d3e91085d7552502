"""The types of tensors and shapes in annotations, and the values of concrete tensors."""

from typing import Any, TypeAlias

import numpy as np

# A concrete or symbolic tensor of the backend, or a value that Keras converts to one. They have no
# common type: `keras.KerasTensor` is symbolic, and TensorFlow has no type stubs.
Tensor: TypeAlias = Any

# The shape of a tensor as Keras passes it to `build`: None stands for an unknown length.
Shape: TypeAlias = tuple[int | None, ...]


def value_outside(ids: Tensor, size: int) -> int | float | None:
    """Return a value of ids that is not from 0 to `size` - 1; None if none is known."""
    try:
        values = np.asarray(ids)
    except (NotImplementedError, TypeError, ValueError, RuntimeError):
        return None  # in a compiled function, or on another device than the CPU under torch
    if values.dtype.kind not in "biuf" or not values.size:
        return None
    lowest = values.min()
    # Not a number is outside as well.
    wrong = values.max() if lowest >= 0 else lowest
    return None if 0 <= wrong < size else wrong.item()
