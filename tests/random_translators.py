"""Translators of random weights, and their ONNX graphs opened."""

import keras
import numpy as np
import onnx_ir as ir

from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator

H, V = 3, 15
SIZES = {
    "model_dim": 18,
    "ff_dim": 13,
    "num_heads": H,
    "max_length": 17,
    "encoder_layers": 1,
    "decoder_layers": 2,
}
OPTIONS = {
    "plain": {},
    "post": {
        "norm": "post",
        "attention_bias": True,
        "tie_embeddings": "all",
        "ff_activation": "gelu",
    },
    "post_dropout": {
        "norm": "post_dropout",
        "encoder_final_norm": True,
        "output_bias": True,
        "tie_embeddings": "target",
    },
    "pre": {
        "decoder_final_norm": False,
        "scale_embeddings": False,
        "positions": "learned",
        "ff_activation": "silu",
    },
    "marian": {
        "norm": "post",
        "norm_epsilon": 1e-5,
        "positions": "sinusoidal_paper_halves",
        "output_bias": True,
        "ff_activation": "silu",
    },
    "m2m": {
        "positions": "sinusoidal_halves",
        "position_offset": 2,
        "source_prefix": (9,),
        "target_prefix": (2,),
        "attention_bias": True,
    },
    "mbart": {
        "positions": "learned",
        "embedding_norm": True,
        "source_prefix": (7, 5),
        "target_prefix": (2, 8, 5),
        "output_bias": True,
    },
    "mbart25": {
        "positions": "learned",
        "source_prefix": (9,),
        "source_suffix": (7, 5),
        "target_prefix": (2,),
    },
    "t5": {
        "positions": "relative",
        "position_buckets": 6,
        "position_max_distance": 5,
        "norm_type": "rms",
        "ff_gated": True,
        "ff_bias": False,
        "ff_activation": "gelu_tanh",
        "scale_embeddings": False,
        "tie_embeddings": "all",
        "source_prefix": (7, 5),
        "key_dim": 5,
    },
    "umt5": {
        "positions": "relative_by_layer",
        "position_buckets": 8,
        "position_max_distance": 6,
        "norm_type": "rms",
        "ff_activation": "gelu_sigmoid",
        "decoder_ff_dim": 11,
        "target_prefix": (2, 8),
        "output_bias": True,
        "encoder_layers": 2,
    },
    "ssru": {
        "decoder_mixer": "ssru",
        "positions": "sinusoidal_paper_halves",
        "source_prefix": (7, 5),
        "tie_embeddings": "target",
    },
    "shared": {
        "shared_projections": True,
        "attention_scale": "key_dim",
        "attention_bias": ["query", "value"],
        "source_end": False,
    },
    "keys_are_values": {
        "keys_are_values": True,
        "positions": "sinusoidal_halves",
        "attention_bias": ["output"],
        "tie_embeddings": "all",
    },
}


def translator_of(tokenizer, kind, **options):
    """A translator of random weights, which vary enough that hypotheses differ early."""
    keras.utils.set_random_seed(3)
    model = kind(kind.config_type(**options))
    model.build()
    random = np.random.default_rng(5)
    model.set_weights(
        [weight + random.normal(scale=0.3, size=weight.shape) for weight in model.get_weights()]
    )
    return Translator(model, tokenizer)


def of_transformer(tokenizer, **options):
    return translator_of(
        tokenizer,
        Transformer,
        **{**SIZES, "source_vocab_size": V, "target_vocab_size": V, **options},
    )


def source_ids():
    """Rows of unlike lengths, one of them blank."""
    ids = np.random.default_rng(1).integers(3, V, (5, 7)).astype("int32")
    for row, length in zip(ids, (7, 1, 4, 2, 6), strict=True):
        row[length - 1 :] = 0
        row[length - 1] = 2
    return ids


def opened(graph, path):
    ir.save(graph, path)
    return open_session(path)


def found_by(session, settings):
    whole = {name: np.array(value, SETTING_DTYPES[name]) for name, value in settings.items()}
    return session.run(["ids", "scores"], {"source_ids": source_ids(), **whole})
