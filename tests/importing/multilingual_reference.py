"""M2M100, NLLB, mBART and Pegasus in NumPy float64, on the arrays of Hugging Face's files, one
sentence pair at a time.
"""

import math

import numpy as np
from marian_reference import ACTIVATIONS, attended, normalized, positions, projected


def logits(arrays, config, source, target):
    """Return the logits (T, rows) after each token of `target`, rows of Hugging Face's vocabulary,
    the start token first.
    """
    arrays = {name: array.astype("float64") for name, array in arrays.items()}
    memory = stack(arrays, config, "encoder", source)
    output = stack(arrays, config, "decoder", target, memory)
    return (
        output @ arrays["model.shared.weight"].T
        + arrays.get("final_logits_bias", np.zeros((1, 1)))[0]
    )


def embedded(arrays, config, name, ids):
    x = arrays["model.shared.weight"][ids] * (
        math.sqrt(config["d_model"]) if config["scale_embedding"] else 1
    )
    if config["model_type"] == "pegasus":
        return x + positions(len(ids), config["d_model"])
    if config["model_type"] != "mbart":
        return x + sinusoids(len(ids), config["d_model"])
    table = arrays[f"model.{name}.embed_positions.weight"]
    return normalized(arrays, f"model.{name}.layernorm_embedding", x + table[2 : 2 + len(ids)])


def sinusoids(length, width):
    """Number by number, as fairseq has them; the first position is 2."""
    half = width // 2
    rows = [
        [position * math.exp(-i * math.log(10000) / (half - 1)) for i in range(half)]
        for position in range(2, length + 2)
    ]
    return np.array([[*map(math.sin, row), *map(math.cos, row)] for row in rows])


def stack(arrays, config, name, ids, memory=None):
    x = embedded(arrays, config, name, ids)
    for i in range(config[f"{name}_layers"]):
        layer = f"model.{name}.layers.{i}"
        y = normalized(arrays, f"{layer}.self_attn_layer_norm", x)
        x = x + attended(arrays, config, f"{layer}.self_attn", y, y, name == "decoder")
        if memory is not None:
            y = normalized(arrays, f"{layer}.encoder_attn_layer_norm", x)
            x = x + attended(arrays, config, f"{layer}.encoder_attn", y, memory)
        inner = projected(
            arrays, f"{layer}.fc1", normalized(arrays, f"{layer}.final_layer_norm", x)
        )
        x = x + projected(arrays, f"{layer}.fc2", ACTIVATIONS[config["activation_function"]](inner))
    return normalized(arrays, f"model.{name}.layer_norm", x)
