"""Conversion of Python functions over tensors to TensorFlow functions."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SETTING_DTYPES

TEXTS_SPEC = tf.TensorSpec([None], tf.string)  # a list of texts


def trace_once(function: Callable[..., Any], specs: Sequence[Tensor]) -> Callable[..., Any]:
    """Return a TensorFlow function that is traced once, at its first call.

    Args:
        function: a Python function from tensors to tensors.
        specs: one `tf.TensorSpec`, or structure of specs, for each input.
    """
    return tf.function(function, autograph=False, input_signature=specs)


def setting_specs() -> list[tf.TensorSpec]:
    """Return the specs of the search settings, scalars in the order of `SearchSettings`."""
    return [tf.TensorSpec([], tf.as_dtype(dtype), name) for name, dtype in SETTING_DTYPES.items()]
