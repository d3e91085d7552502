"""Keras layers of Transformers.

Imports `config` and `constants`, and Keras.
"""

from tfk_transformer.layers.attention import MultiHeadAttention
from tfk_transformer.layers.decoder import Decoder, DecoderLayer
from tfk_transformer.layers.encoder import Encoder, EncoderLayer
from tfk_transformer.layers.feed_forward import FeedForward
from tfk_transformer.layers.masks import causal_mask, padding_mask
from tfk_transformer.layers.positions import position_table, sinusoids
from tfk_transformer.layers.residual import Residual

__all__ = [
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "MultiHeadAttention",
    "Residual",
    "causal_mask",
    "padding_mask",
    "sinusoids",
    "position_table",
]
