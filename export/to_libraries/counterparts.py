"""Check whether another library supports the options of a model.

Every option is compared with the values that the library supports. An option that is not listed
must have its default value.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID
from tfk_transformer.models.registry import ModelConfig

# The libraries support every value of these options.
FREE = frozenset(
    (
        "model_dim",
        "num_heads",
        "ff_dim",
        "ff_expansion",
        "encoder_layers",
        "decoder_layers",
        "max_length",
        "source_vocab_size",
        "target_vocab_size",
        "tie_embeddings",
        "scale_embeddings",
        "output_bias",
        # See `plain_attention`.
        "key_dim",
        "value_dim",
        "attention_bias",
        "attention_scale",
        "keys_are_values",
        "shared_projections",
        # These options do not affect a search. `output` selects the result of calling the Keras
        # model.
        "dropout",
        "attention_dropout",
        "attention_output_dropout",
        "ff_dropout",
        "embedding_dropout",
        "decoder_attention_dropout",
        "output",
        "source_language",
        "target_language",
        "split_sentences",
    )
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
    FREE
    | {
        "norm_epsilon",
        "norm_type",
        "embedding_norm",
        "positions",
        "position_offset",
        "position_buckets",
        "position_max_distance",
        "ff_activation",
        "ff_gated",
        "ff_bias",
        "decoder_ff_dim",
        "source_end",
    },
    {
        "norm": ("pre", "post", "post_dropout"),
        "encoder_final_norm": (None, True, False),
        "decoder_final_norm": (None, True, False),
    },
    unequal_head_widths,
)
MARIAN = Library(
    FREE - {"tie_embeddings"} | {"decoder_ff_dim"},
    {
        "tie_embeddings": ("none", "target", "all"),
        "positions": ("sinusoidal_paper_halves",),
        "ff_activation": ("relu", "gelu", "silu", "gelu_tanh", "gelu_sigmoid"),
        "norm": ("post", "post_dropout"),
        "norm_epsilon": (1e-5,),
        "encoder_final_norm": (None, False),
        "decoder_final_norm": (None, False),
    },
    nonstandard_head_widths,
)
M2M100 = Library(
    FREE - {"tie_embeddings"} | {"decoder_ff_dim"},
    {
        "positions": ("sinusoidal_halves",),
        "position_offset": (2,),
        "ff_activation": ("relu", "gelu", "silu", "gelu_tanh", "gelu_sigmoid"),
        "norm": ("pre",),
        "norm_epsilon": (1e-5,),
        "encoder_final_norm": (None, True),
        "decoder_final_norm": (None, True),
        "tie_embeddings": ("all",),
        "target_prefix": ((END_ID,),),
    },
    nonstandard_head_widths,
)
