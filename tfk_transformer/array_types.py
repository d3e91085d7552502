"""The type of tensors in annotations."""

from typing import Any, TypeAlias

# A tensor of the backend that Keras runs on, concrete or symbolic, or what Keras makes one of. The backends' tensors have no common
# type: `keras.KerasTensor` is the symbolic one alone, and TensorFlow has no stubs. Shapes stand in docstrings.
Tensor: TypeAlias = Any
