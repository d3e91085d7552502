"""The types of tensors and shapes in annotations."""

from typing import Any, TypeAlias

# A concrete or symbolic tensor of the backend, or a value that Keras converts to a tensor. The
# backends' tensors have no common type: `keras.KerasTensor` is the type of symbolic tensors only,
# and TensorFlow has no type stubs. Docstrings describe the shapes.
Tensor: TypeAlias = Any

# The shape of a tensor as Keras passes it to `build`: None stands for an unknown length.
Shape: TypeAlias = tuple[int | None, ...]
