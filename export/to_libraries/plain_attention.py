"""Attention weights in the form that all libraries support.

Each head has its own query, key and value projection, and its logits are scaled by 1 / sqrt(K).
"""

import numpy as np

from tfk_transformer.models.transformer import Transformer

ROLES = ("query", "key", "value")


def plain_attention(model: Transformer) -> dict[str, np.ndarray]:
    """Return weights by name that give the same results without this library's attention options.

    With `keys_are_values`, keys get the projection of the values. With `shared_projections`, each
    head gets its own projection (D, K), which is zero outside the head's slice of the input. With
    the `attention_scale` "key_dim", queries are scaled by 1 / sqrt(K).
    """
    config = model.config
    weights = {name: np.asarray(weight) for name, weight in model.named_weights.items()}
    plain = dict(weights)
    for path in [name.removesuffix("/query") for name in weights if name.endswith("/query")]:
        if config.keys_are_values:
            plain |= {
                f"{path}/key{suffix}": weights[f"{path}/value{suffix}"]
                for suffix in ("", "_bias")
                if f"{path}/value{suffix}" in weights
            }
        if config.shared_projections:
            plain |= {
                f"{path}/{role}": _project_each_head(plain[f"{path}/{role}"], config.num_heads)
                for role in ROLES
            }
            biases = [f"{path}/{role}_bias" for role in ROLES if f"{path}/{role}_bias" in plain]
            plain |= {name: np.repeat(plain[name], config.num_heads, axis=0) for name in biases}
        if config.attention_scale == "key_dim":
            queries = [name for name in (f"{path}/query", f"{path}/query_bias") if name in plain]
            plain |= {name: plain[name] * np.float32(config.query_width**-0.5) for name in queries}
    return plain


def _project_each_head(shared: np.ndarray, heads: int) -> np.ndarray:
    """Return a projection (H, D, K) with zeros outside each head's slice of the input.

    Args:
        shared: the projection (1, D/H, K) of every slice.
        heads: the number of heads H.
    """
    _, rows, width = shared.shape
    projections = np.zeros((heads, heads, rows, width), "float32")  # (H, slice, D/H, K)
    projections[np.arange(heads), np.arange(heads)] = shared[0]
    return projections.reshape(heads, heads * rows, width)
