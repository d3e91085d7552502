"""Compare a model's options with other libraries, and give it attention that all support."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, START_ID
from tfk_transformer.models.registry import ModelConfig
from tfk_transformer.models.transformer import Transformer

# The supported values of options that need not have their default value; None: every value.
Library: TypeAlias = Mapping[str, tuple[object, ...] | None]

# The libraries support every value of these options.
FREE: Library = dict.fromkeys(
    # Sizes and embeddings.
    "model_dim num_heads ff_dim ff_expansion encoder_layers decoder_layers max_length "
    "source_vocab_size target_vocab_size tie_embeddings scale_embeddings output_bias "
    # See `plain_attention`. For the widths of heads, see `unsupported_options`.
    "key_dim value_dim attention_bias attention_scale keys_are_values shared_projections "
    # These options do not affect a search. `output` selects the result of calling the Keras model.
    "dropout attention_dropout attention_output_dropout ff_dropout embedding_dropout "
    "decoder_attention_dropout output source_language target_language split_sentences".split()
)
CTRANSLATE2: Library = {
    **FREE,
    **dict.fromkeys(
        "norm_epsilon embedding_norm positions position_offset position_buckets "
        "position_max_distance ff_gated ff_bias decoder_ff_dim source_end".split()
    ),
    "source_prefix": ((), (START_ID,)),  # add_source_bos
    "norm_type": ("layer", "rms"),
    "ff_activation": ("relu", "gelu", "silu", "gelu_tanh", "gelu_sigmoid"),
    "norm": ("pre", "post", "post_dropout"),
    "encoder_final_norm": (None, True, False),
    "decoder_final_norm": (None, True, False),
}
# Both families of Hugging Face.
BART: Library = {
    **FREE,
    "decoder_ff_dim": None,
    "ff_activation": ("relu", "gelu", "silu", "gelu_tanh", "gelu_sigmoid"),
    "norm_epsilon": (1e-5,),
}
MARIAN: Library = {
    **BART,
    "tie_embeddings": ("none", "target", "all"),
    "positions": ("sinusoidal_paper_halves",),
    "norm": ("post", "post_dropout"),
    "encoder_final_norm": (None, False),
    "decoder_final_norm": (None, False),
}
M2M100: Library = {
    **BART,
    "positions": ("sinusoidal_halves",),
    "position_offset": (2,),
    "norm": ("pre",),
    "encoder_final_norm": (None, True),
    "decoder_final_norm": (None, True),
    "tie_embeddings": ("all",),
    "target_prefix": ((END_ID,),),
}


def unsupported_options(config: ModelConfig, library: Library) -> list[str]:
    """Return every option that a library does not support, with the supported values."""
    if not isinstance(config, TransformerConfig):
        return [f"architecture '{config.architecture}' (expected 'encoder_decoder')"]
    problems = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        allowed = library.get(name, (field.get_default(),))
        if allowed is not None and value not in allowed:
            problems.append(f"{name} {value!r} (expected {' or '.join(map(repr, allowed))})")
    widths = {"key_dim": config.query_width, "value_dim": config.value_width}
    if library is not CTRANSLATE2:
        expected = f"model_dim / num_heads, {config.model_dim / config.num_heads:g}"
        for name, width in widths.items():
            if width * config.num_heads != config.model_dim:
                problems.append(f"{name} {width} (expected {expected})")
    elif config.query_width != config.value_width:
        got = " and ".join(f"{name} {width}" for name, width in widths.items())
        problems.append(f"{got} (expected equal widths)")
    return problems


def plain_attention(model: Transformer) -> dict[str, np.ndarray]:
    """Return weights by name that give the same results without this library's attention options.

    Each head has its own query, key and value projection, and its logits are scaled by 1 / sqrt(K).
    """
    config = model.config
    heads = config.num_heads
    weights = {name: np.asarray(weight) for name, weight in model.named_weights.items()}
    plain = dict(weights)
    for path in [name.removesuffix("/query") for name in weights if name.endswith("/query")]:
        if config.keys_are_values:
            for suffix in ("", "_bias"):
                if f"{path}/value{suffix}" in weights:
                    plain[f"{path}/key{suffix}"] = weights[f"{path}/value{suffix}"]
        if config.shared_projections:
            roles = [f"{path}/{role}" for role in ("query", "key", "value")]
            for name in roles:
                _, rows, width = plain[name].shape
                # Zero outside of each head's slice of the input.
                own = np.zeros((heads, heads, rows, width), "float32")  # (H, slice, D/H, K)
                own[np.arange(heads), np.arange(heads)] = plain[name][0]
                plain[name] = own.reshape(heads, heads * rows, width)
            biases = [f"{name}_bias" for name in roles if f"{name}_bias" in plain]
            plain |= {name: np.repeat(plain[name], heads, axis=0) for name in biases}
        if config.attention_scale == "key_dim":
            queries = [name for name in (f"{path}/query", f"{path}/query_bias") if name in plain]
            plain |= {name: plain[name] * np.float32(config.query_width**-0.5) for name in queries}
    return plain
