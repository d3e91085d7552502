"""The encoder: a stack of self-attention and feed-forward layers ("Attention Is All You Need", section 3.1)."""

from typing import Any, NamedTuple

import keras

from tfk_transformer.attention import Attended, MultiHeadAttention
from tfk_transformer.config import TransformerConfig
from tfk_transformer.feed_forward import FeedForward
from tfk_transformer.residual import Residual


class Encoded(NamedTuple):
    """What the encoder gives."""

    output: Any  # (B, S, D)
    weights: list  # a float32 (B, H, S, S) for each layer


class ConfiguredLayer(keras.layers.Layer):
    """Base of the layers that a whole `TransformerConfig` describes; it rides along as a plain dictionary when saved."""

    def __init__(self, config: TransformerConfig, **kwargs):
        # Autocast would turn a float32 mask's -1e9 into float16's -inf.
        super().__init__(autocast=False, **kwargs)
        self.config = config

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        return {**super().get_config(), "config": self.config.model_dump()}

    @classmethod
    def from_config(cls, config):
        """Make the layer from what `get_config` returned."""
        return cls(**{**config, "config": TransformerConfig(**config["config"])})

    def _attention(self, name):
        c = self.config
        return MultiHeadAttention(
            c.num_heads, c.query_width, c.value_width, c.attention_bias, c.attention_dropout, dtype=self.dtype_policy, name=name
        )

    def _feed_forward(self):
        return FeedForward(self.config.ff_dim, self.config.ff_dropout, dtype=self.dtype_policy, name="feed_forward")

    def _residual(self, name):
        return Residual(self.config.norm, self.config.dropout, self.config.norm_epsilon, dtype=self.dtype_policy, name=name)

    def _final_norm(self):
        """Return the norm after a stack: pre-norm layers leave their sum unnormalised, post-norm layers do not."""
        if self.config.norm == "post":
            return keras.layers.Identity(dtype=self.dtype_policy, name="final_norm")
        return keras.layers.LayerNormalization(epsilon=self.config.norm_epsilon, dtype=self.dtype_policy, name="final_norm")

    def _build_all(self, *layers):
        for layer in layers:
            layer.build((None, None, self.config.model_dim))


@keras.saving.register_keras_serializable(package="tfk_transformer")
class EncoderLayer(ConfiguredLayer):
    """Self-attention, then feed-forward, each inside a residual connection.

    Args:
        config: the model's sizes and options.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.attention = self._attention("attention")
        self.attention_residual = self._residual("attention_residual")
        self.feed_forward = self._feed_forward()
        self.ff_residual = self._residual("ff_residual")

    def build(self, x_shape, attention_mask_shape=None):
        """Make all weights."""
        self._build_all(self.attention, self.attention_residual, self.feed_forward, self.ff_residual)

    def call(self, x, attention_mask=None, training=None) -> Attended:
        """Map x (B, S, D) to an output of the same shape and its attention weights (B, H, S, S)."""
        attended = self.attention(self.attention_residual.enter(x), attention_mask=attention_mask, training=training)
        x = self.attention_residual(x, attended.output, training=training)
        y = self.feed_forward(self.ff_residual.enter(x), training=training)
        return Attended(self.ff_residual(x, y, training=training), attended.weights)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Encoder(ConfiguredLayer):
    """A stack of encoder layers over embedded tokens.

    Args:
        config: the model's sizes and options.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.layers = [EncoderLayer(config, dtype=self.dtype_policy, name=f"layer_{i}") for i in range(config.encoder_layers)]
        self.final_norm = self._final_norm()

    def build(self, x_shape, attention_mask_shape=None):
        """Make all weights."""
        self._build_all(*self.layers, self.final_norm)

    def call(self, x, attention_mask=None, training=None) -> Encoded:
        """Encode embedded tokens.

        Args:
            x: (B, S, D).
            attention_mask: additive, broadcastable to (B, H, S, S).
            training: whether dropout is on.
        """
        weights = []
        for layer in self.layers:
            x, layer_weights = layer(x, attention_mask=attention_mask, training=training)
            weights.append(layer_weights)
        return Encoded(self.final_norm(x), weights)
