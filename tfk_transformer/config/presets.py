"""Named options: common sizes, and the Transformers that docs/seeds.md compares."""

from typing import Any

# By name: model_dim, ff_dim, num_heads, the layers of the encoder and of the decoder, dropout.
_SIZES = {
    "tiny": (128, 512, 4, 2, 0.0),
    "small": (256, 1024, 4, 3, 0.2),
    "base": (512, 2048, 8, 6, 0.1),
    "big": (1024, 4096, 16, 6, 0.3),
}
# What the compared Transformers have in common, except where they replace it.
_COMMON = {
    "model_dim": 512,
    "num_heads": 8,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "dropout": 0.1,
    "tie_embeddings": "none",
}
PRESETS: dict[str, dict[str, Any]] = {
    **{
        name: {
            "model_dim": model_dim,
            "ff_dim": ff_dim,
            "num_heads": num_heads,
            "encoder_layers": layers,
            "decoder_layers": layers,
            "dropout": dropout,
        }
        for name, (model_dim, ff_dim, num_heads, layers, dropout) in _SIZES.items()
    },
    "yet_another_explanation": {
        **_COMMON,
        "ff_dim": 512,
        "encoder_layers": 3,
        "decoder_layers": 3,
        "attention_bias": True,
        "norm": "pre",
        "norm_epsilon": 1e-5,
        "positions": "learned",
        "scale_embeddings": False,
        "attention_dropout": 0.1,
        "decoder_attention_dropout": 0.0,
        "ff_dropout": 0.1,
        "output_bias": True,
    },
    "from_zero": {
        **_COMMON,
        "key_dim": 512,
        "value_dim": 512,
        "ff_dim": 2048,
        "keys_are_values": True,
        "attention_bias": True,
        "norm": "post",
        "norm_epsilon": 1e-5,
        "scale_embeddings": False,
        "output_bias": True,
        "output": "probabilities",
    },
    "step_by_step": {
        **_COMMON,
        "ff_dim": 2048,
        "norm": "post",
        "scale_embeddings": False,
        "output_bias": True,
    },
    "transformer_details": {
        **_COMMON,
        "key_dim": 64,
        "value_dim": 64,
        "ff_dim": 2048,
        "attention_scale": "key_dim",
        "attention_output_dropout": 0.1,
        "norm": "post",
        "dropout": 0.0,
    },
    "from_scratch_pytorch": {
        **_COMMON,
        "ff_expansion": 4,
        "shared_projections": True,
        "attention_bias": ["output"],
        "norm": "post_dropout",
        "norm_epsilon": 1e-5,
        "dropout": 0.2,
        "output_bias": True,
        "output": "probabilities",
    },
}
