"""The types of tensors and shapes in annotations."""

from typing import Any, TypeAlias

# A concrete or symbolic tensor of the backend, or anything that Keras converts to one. The
# backends' tensors have no common type: `keras.KerasTensor` is only the symbolic one, and
# TensorFlow has no type stubs. Shapes are given in docstrings.
Tensor: TypeAlias = Any

# The shape of a tensor as Keras passes it to `build`: None stands for an unknown length.
Shape: TypeAlias = tuple[int | None, ...]
