"""Attention weights in the form that all libraries have: a query, key and value projection for each
head, scaled by 1 / sqrt(K).
"""

from collections.abc import Mapping

import numpy as np

from tfk_transformer.config.layer_options import LayerOptions

ROLES = ("query", "key", "value")
WEIGHT_SUFFIXES = ("", "_bias")


def plain_attention(
    config: LayerOptions, weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the weights of a model with the same results and without options of attention that
    other libraries lack.

    Args:
        config: the options of the layers. With `keys_are_values`, keys get the projection of the
            values. With `shared_projections`, each head gets a projection (D, K) of its own, which
            is zero outside the head's slice of the input. With the `attention_scale` "key_dim",
            queries are scaled by 1 / sqrt(K).
        weights: all weights by name.
    """
    made = dict(weights)
    for path in [name.removesuffix("/query") for name in weights if name.endswith("/query")]:
        if config.keys_are_values:
            made |= {
                f"{path}/key{part}": weights[f"{path}/value{part}"]
                for part in WEIGHT_SUFFIXES
                if f"{path}/value{part}" in weights
            }
        if config.shared_projections:
            made |= {
                f"{path}/{role}": _for_each_head(made[f"{path}/{role}"], config.num_heads)
                for role in ROLES
            }
            biases = [f"{path}/{role}_bias" for role in ROLES if f"{path}/{role}_bias" in made]
            made |= {name: np.repeat(made[name], config.num_heads, axis=0) for name in biases}
        if config.attention_scale == "key_dim":
            queries = [
                f"{path}/query{part}" for part in WEIGHT_SUFFIXES if f"{path}/query{part}" in made
            ]
            made |= {name: made[name] * np.float32(config.query_width**-0.5) for name in queries}
    return made


def _for_each_head(shared: np.ndarray, heads: int) -> np.ndarray:
    """Return projections (H, D, K) of a shared one (1, D/H, K): each reads its own slice of the
    input.
    """
    _, rows, width = shared.shape
    made = np.zeros((heads, heads, rows, width), "float32")  # (H, slice, D/H, K)
    made[np.arange(heads), np.arange(heads)] = shared[0]
    return made.reshape(heads, heads * rows, width)
