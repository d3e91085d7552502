"""The names and shapes that the layers of BART and its descendants have in Hugging Face's files, MarianMT among them."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig

# The attentions of a layer: the family's name, and this project's names of the attention and of its residual connection.
ENCODER_PARTS = {"self_attn": ("attention", "attention_residual")}
DECODER_PARTS = {"self_attn": ("self_attention", "self_residual"), "encoder_attn": ("cross_attention", "cross_residual")}
PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}


class Array(NamedTuple):
    """An array of a file, and what this project makes of it."""

    name: str
    shape: tuple[int, ...]
    convert: Callable[[np.ndarray], np.ndarray] = np.asarray


def layer_arrays(config: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of all layers by the names that they have in a `Transformer`."""
    stacks = (("encoder", config.encoder_layers, ENCODER_PARTS), ("decoder", config.decoder_layers, DECODER_PARTS))
    return {
        f"{stack}/layer_{i}/{name}": array._replace(name=f"model.{stack}.layers.{i}.{array.name}")
        for stack, count, parts in stacks
        for i in range(count)
        for name, array in _layer(config, parts)
    }


def _layer(config: TransformerConfig, parts: dict[str, tuple[str, str]]) -> Iterator[tuple[str, Array]]:
    for theirs, (attention, residual) in parts.items():
        yield from _attention(config, attention, theirs)
        yield from _norm(config, residual, f"{theirs}_layer_norm")
    yield from _dense("feed_forward/inner", "fc1", config.model_dim, config.ff_width)
    yield from _dense("feed_forward/outer", "fc2", config.ff_width, config.model_dim)
    yield from _norm(config, "ff_residual", "final_layer_norm")


def _attention(config: TransformerConfig, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
    width = config.model_dim
    heads = (config.num_heads, config.query_width)  # H, K; H * K = D
    for role, name in PROJECTIONS.items():
        # (H*K, D) -> (H, D, K), and (H*K,) -> (H, 1, K)
        yield f"{ours}/{role}", Array(f"{theirs}.{name}.weight", (width, width), lambda w: w.reshape(*heads, width).transpose(0, 2, 1))
        yield f"{ours}/{role}_bias", Array(f"{theirs}.{name}.bias", (width,), lambda b: b.reshape(heads[0], 1, heads[1]))
    yield f"{ours}/output", Array(f"{theirs}.out_proj.weight", (width, width), np.transpose)
    yield f"{ours}/output_bias", Array(f"{theirs}.out_proj.bias", (width,))


def _dense(ours: str, theirs: str, inputs: int, outputs: int) -> Iterator[tuple[str, Array]]:
    yield f"{ours}/kernel", Array(f"{theirs}.weight", (outputs, inputs), np.transpose)
    yield f"{ours}/bias", Array(f"{theirs}.bias", (outputs,))


def _norm(config: TransformerConfig, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
    yield f"{ours}/norm/gamma", Array(f"{theirs}.weight", (config.model_dim,))
    yield f"{ours}/norm/beta", Array(f"{theirs}.bias", (config.model_dim,))
