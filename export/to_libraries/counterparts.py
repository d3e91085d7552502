"""Which options of a model another library has too, and how the others are refused.

Every option is compared with a list of values that a library is known to have. An option that no
list knows may only have its default.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID
from tfk_transformer.models.registry import ModelConfig

SIZE_OPTIONS = (
    "model_dim",
    "num_heads",
    "ff_dim",
    "ff_expansion",
    "encoder_layers",
    "decoder_layers",
    "max_length",
)
VOCABULARIES = (
    "source_vocab_size",
    "target_vocab_size",
    "tie_embeddings",
    "scale_embeddings",
    "output_bias",
)
# See `plain_attention`.
ATTENTION_OPTIONS = (
    "key_dim",
    "value_dim",
    "attention_bias",
    "attention_scale",
    "keys_are_values",
    "shared_projections",
)
TRAINING = (  # these change nothing in a search; `output` is what a call of the Keras model returns
    "dropout",
    "attention_dropout",
    "attention_output_dropout",
    "ff_dropout",
    "embedding_dropout",
    "decoder_attention_dropout",
    "output",
)
FREE = frozenset((*SIZE_OPTIONS, *VOCABULARIES, *ATTENTION_OPTIONS, *TRAINING))


class Library(NamedTuple):
    """The options that another library has."""

    name: str
    free: frozenset[str]  # options of which it has every value
    values: Mapping[str, tuple[object, ...]]  # the values that it has of the others
    # Problems of the widths of attention heads, in words.
    widths: Callable[[TransformerConfig], Iterable[str]]


def unsupported_options(config: ModelConfig, library: Library) -> list[str]:
    """Return every option that a library lacks, with the values that it has."""
    if not isinstance(config, TransformerConfig):
        return [f"architecture '{config.architecture}' (expected 'encoder_decoder')"]
    return [*_options(config, library), *library.widths(config)]


def _options(config: TransformerConfig, library: Library) -> Iterator[str]:
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        allowed: tuple[Any, ...] = library.values.get(name, (field.get_default(),))
        if name not in library.free and value not in allowed:
            yield f"{name} {value!r} (expected {' or '.join(map(repr, allowed))})"


def unlike_widths(config: TransformerConfig) -> Iterator[str]:
    """Yield a line if query and value heads differ in width."""
    if config.query_width != config.value_width:
        yield (
            f"key_dim {config.query_width} beside value_dim {config.value_width} (expected "
            "equal widths)"
        )


def other_widths(config: TransformerConfig) -> Iterator[str]:
    """Yield a line for each width of heads that is not model_dim / num_heads."""
    for name, width in (("key_dim", config.query_width), ("value_dim", config.value_width)):
        if width * config.num_heads != config.model_dim:
            yield (
                f"{name} {width} (expected model_dim / num_heads, "
                f"{config.model_dim / config.num_heads:g})"
            )


CTRANSLATE2 = Library(
    "CTranslate2",
    FREE | {"norm_epsilon"},
    {
        "architecture": ("encoder_decoder",),
        "positions": ("sinusoidal", "sinusoidal_halves", "sinusoidal_paper_halves", "learned"),
        "ff_activation": ("relu", "gelu", "silu"),
        "norm": ("pre", "post", "post_dropout"),
        "encoder_final_norm": (None, True, False),
        "decoder_final_norm": (None, True, False),
    },
    unlike_widths,
)
MARIAN = Library(
    "MarianMT",
    FREE,
    {
        "architecture": ("encoder_decoder",),
        "positions": ("sinusoidal_paper_halves",),
        "ff_activation": ("relu", "gelu", "silu"),
        "norm": ("post", "post_dropout"),
        "norm_epsilon": (1e-5,),
        "encoder_final_norm": (None, False),
        "decoder_final_norm": (None, False),
    },
    other_widths,
)
M2M100 = Library(
    "M2M100",
    FREE - {"tie_embeddings"},
    {
        "architecture": ("encoder_decoder",),
        "positions": ("sinusoidal_halves",),
        "position_offset": (2,),
        "ff_activation": ("relu", "gelu", "silu"),
        "norm": ("pre",),
        "norm_epsilon": (1e-5,),
        "encoder_final_norm": (None, True),
        "decoder_final_norm": (None, True),
        "tie_embeddings": ("all",),
        "target_prefix": ((END_ID,),),
    },
    other_widths,
)
