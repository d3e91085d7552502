"""Check whether another library supports the options of a model, and convert the attention of a
model to the form that all libraries support.

Every option is compared with the values that the library supports. An option that is not listed
must have its default value.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID
from tfk_transformer.models.registry import ModelConfig
from tfk_transformer.models.transformer import Transformer

ROLES = ("query", "key", "value")

# The libraries support every value of these options.
FREE = frozenset(
    # Sizes and embeddings.
    "model_dim num_heads ff_dim ff_expansion encoder_layers decoder_layers max_length "
    "source_vocab_size target_vocab_size tie_embeddings scale_embeddings output_bias "
    # See `plain_attention`.
    "key_dim value_dim attention_bias attention_scale keys_are_values shared_projections "
    # These options do not affect a search. `output` selects the result of calling the Keras model.
    "dropout attention_dropout attention_output_dropout ff_dropout embedding_dropout "
    "decoder_attention_dropout output source_language target_language split_sentences".split()
)


class Library(NamedTuple):
    """The options that another library supports."""

    free: frozenset[str]  # options that may have any value
    values: Mapping[str, tuple[object, ...]]  # supported values of other options
    # Yields a description of each problem with the widths of attention heads.
    width_problems: Callable[[TransformerConfig], Iterable[str]]


def unsupported_options(config: ModelConfig, library: Library) -> list[str]:
    """Return every option that a library does not support, with the supported values."""
    if not isinstance(config, TransformerConfig):
        return [f"architecture '{config.architecture}' (expected 'encoder_decoder')"]
    problems = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        allowed: tuple[Any, ...] = library.values.get(name, (field.get_default(),))
        if name not in library.free and value not in allowed:
            problems.append(f"{name} {value!r} (expected {' or '.join(map(repr, allowed))})")
    return [*problems, *library.width_problems(config)]


def unequal_head_widths(config: TransformerConfig) -> Iterator[str]:
    """Yield a message if query and value heads differ in width."""
    if config.query_width != config.value_width:
        yield (
            f"key_dim {config.query_width} and value_dim {config.value_width} (expected equal "
            "widths)"
        )


def nonstandard_head_widths(config: TransformerConfig) -> Iterator[str]:
    """Yield a message for each head width that is not model_dim / num_heads."""
    for name, width in (("key_dim", config.query_width), ("value_dim", config.value_width)):
        if width * config.num_heads != config.model_dim:
            yield (
                f"{name} {width} (expected model_dim / num_heads, "
                f"{config.model_dim / config.num_heads:g})"
            )


CTRANSLATE2 = Library(
    FREE.union(
        "norm_epsilon norm_type embedding_norm positions position_offset position_buckets "
        "position_max_distance ff_activation ff_gated ff_bias decoder_ff_dim source_end".split()
    ),
    {
        "norm": ("pre", "post", "post_dropout"),
        "encoder_final_norm": (None, True, False),
        "decoder_final_norm": (None, True, False),
    },
    unequal_head_widths,
)
# Both families of Hugging Face.
BART_FREE = FREE - {"tie_embeddings"} | {"decoder_ff_dim"}
BART_VALUES: dict[str, tuple[object, ...]] = {
    "ff_activation": ("relu", "gelu", "silu", "gelu_tanh", "gelu_sigmoid"),
    "norm_epsilon": (1e-5,),
}
MARIAN = Library(
    BART_FREE,
    {
        **BART_VALUES,
        "tie_embeddings": ("none", "target", "all"),
        "positions": ("sinusoidal_paper_halves",),
        "norm": ("post", "post_dropout"),
        "encoder_final_norm": (None, False),
        "decoder_final_norm": (None, False),
    },
    nonstandard_head_widths,
)
M2M100 = Library(
    BART_FREE,
    {
        **BART_VALUES,
        "positions": ("sinusoidal_halves",),
        "position_offset": (2,),
        "norm": ("pre",),
        "encoder_final_norm": (None, True),
        "decoder_final_norm": (None, True),
        "tie_embeddings": ("all",),
        "target_prefix": ((END_ID,),),
    },
    nonstandard_head_widths,
)


def plain_attention(model: Transformer) -> dict[str, np.ndarray]:
    """Return weights by name that give the same results without this library's attention options.

    Each head has its own query, key and value projection, and its logits are scaled by 1 / sqrt(K).
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
    """Return a projection (H, D, K) with zeros outside each head's slice of the input, from the
    projection (1, D/H, K) of every slice.
    """
    _, rows, width = shared.shape
    projections = np.zeros((heads, heads, rows, width), "float32")  # (H, slice, D/H, K)
    projections[np.arange(heads), np.arange(heads)] = shared[0]
    return projections.reshape(heads, heads * rows, width)
