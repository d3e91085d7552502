"""Searches that are traced once: shapes are unknown, and settings are tensors, as in exported
files.
"""

import tensorflow as tf

from tfk_transformer.config.search_settings import SETTING_DTYPES, SearchSettings
from tfk_transformer.search.search_state import Limits

LIMIT_SPECS = Limits(**{name: tf.TensorSpec([], dtype) for name, dtype in SETTING_DTYPES.items()})


def setting_tensors(**changes) -> Limits:
    """Return search settings as tensors, without the limits that `SearchSettings` has.

    Args:
        changes: settings that are not the default ones.
    """
    values = SearchSettings().as_numbers() | changes
    return Limits(
        **{name: tf.constant(values[name], SETTING_DTYPES[name]) for name in SETTING_DTYPES}
    )


def traced_generate(functions, prefixes=True):
    """Return the `generate` of a translator's functions as a graph, traced in its first call.

    Returns:
        A function from source ids (B, S), settings as tensors and, with `prefixes`, prefix ids
        (B, P) to `Hypotheses`.
    """
    ids = tf.TensorSpec([None, None], tf.int32)
    specs = [ids, LIMIT_SPECS, *([ids] if prefixes else [])]

    @tf.function(input_signature=specs, autograph=False)
    def generate(source, limits, prefix=None):
        return functions.generate(source, limits, prefix)

    return generate
