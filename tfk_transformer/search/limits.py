"""Search settings as tensors, the limits of a search."""

from collections import namedtuple
from typing import cast

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.constants import LENGTH_ALLOWANCE

# The fields of `SearchSettings`. Type checkers do not support named tuples with computed fields.
_Settings: Tensor = cast("Tensor", namedtuple("_Settings", SETTING_DTYPES))


class Limits(_Settings):
    """Search settings as tensors or Python numbers, in the order of `SearchSettings`.

    See `SearchSettings.as_numbers`.
    """

    __slots__ = ()

    def max_lengths(self, source_lengths: Tensor) -> Tensor:
        """Return the maximum target lengths (B,) for sources of these lengths (B,)."""
        allowed = tf.math.ceil(tf.cast(source_lengths, tf.float32) * self.max_length_factor)
        return tf.minimum(self.max_length, tf.cast(allowed, tf.int32) + LENGTH_ALLOWANCE)
