"""Keras layers of Transformers.

Imports `config` and `constants`, and Keras.
"""

from tfk_transformer.layers.attention import MultiHeadAttention as MultiHeadAttention
from tfk_transformer.layers.decoder import Decoder as Decoder
from tfk_transformer.layers.decoder import DecoderLayer as DecoderLayer
from tfk_transformer.layers.encoder import Encoder as Encoder
from tfk_transformer.layers.encoder import EncoderLayer as EncoderLayer
from tfk_transformer.layers.feed_forward import FeedForward as FeedForward
from tfk_transformer.layers.masks import causal_mask as causal_mask
from tfk_transformer.layers.masks import padding_mask as padding_mask
from tfk_transformer.layers.positions import position_table as position_table
from tfk_transformer.layers.positions import sinusoids as sinusoids
from tfk_transformer.layers.residual import Residual as Residual
