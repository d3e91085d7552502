"""MarianMT in NumPy float64, on the arrays of Hugging Face's files, one sentence pair at a time."""

import math

import numpy as np


def logits(arrays, config, source, target):
    """Return the logits (T, rows) after each token of `target`, rows of Hugging Face's vocabulary,
    the start token first.
    """
    arrays = {name: array.astype("float64") for name, array in arrays.items()}
    shared = arrays.get("model.shared.weight")
    tables = [
        arrays.get(f"model.{stack}.embed_tokens.weight", shared) for stack in ("encoder", "decoder")
    ]
    memory = stack(arrays, config, "encoder", embedded(config, tables[0], source))
    output = stack(arrays, config, "decoder", embedded(config, tables[1], target), memory)
    return output @ arrays.get("lm_head.weight", tables[1]).T + arrays["final_logits_bias"][0]


def embedded(config, table, ids):
    return table[ids] * (
        math.sqrt(config["d_model"]) if config["scale_embedding"] else 1
    ) + positions(len(ids), config["d_model"])


def positions(length, width):
    """Column by column: a sine for each even column of the paper's table, then a cosine for each
    odd one.
    """
    rows = [
        [position / 10000 ** (2 * (column // 2) / width) for column in range(width)]
        for position in range(length)
    ]
    return np.array([[*map(math.sin, row[::2]), *map(math.cos, row[1::2])] for row in rows])


def stack(arrays, config, name, x, memory=None):
    for i in range(config[f"{name}_layers"]):
        layer = f"model.{name}.layers.{i}"
        x = normalized(
            arrays,
            f"{layer}.self_attn_layer_norm",
            x + attended(arrays, config, f"{layer}.self_attn", x, x, name == "decoder"),
        )
        if memory is not None:
            read = attended(arrays, config, f"{layer}.encoder_attn", x, memory)
            x = normalized(arrays, f"{layer}.encoder_attn_layer_norm", x + read)
        inner = ACTIVATIONS[config["activation_function"]](projected(arrays, f"{layer}.fc1", x))
        x = normalized(
            arrays, f"{layer}.final_layer_norm", x + projected(arrays, f"{layer}.fc2", inner)
        )
    return x


def attended(arrays, config, path, x, memory, causal=False):
    heads = config["encoder_attention_heads"]
    width = config["d_model"] // heads
    query, key, value = (
        projected(arrays, f"{path}.{part}_proj", y)
        for part, y in zip("qkv", (x, memory, memory), strict=True)
    )
    outputs = []
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        scores = query[:, own] @ key[:, own].T / math.sqrt(width)
        if causal:
            scores[np.triu_indices(len(x), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        outputs.append(weights / weights.sum(axis=1, keepdims=True) @ value[:, own])
    return projected(arrays, f"{path}.out_proj", np.concatenate(outputs, axis=1))


def projected(arrays, path, x):
    return x @ arrays[f"{path}.weight"].T + arrays[f"{path}.bias"]


def normalized(arrays, path, x):
    centered = x - x.mean(axis=1, keepdims=True)
    return (
        centered
        / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
        * arrays[f"{path}.weight"]
        + arrays[f"{path}.bias"]
    )


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu": gelu,
    "gelu_new": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
}
