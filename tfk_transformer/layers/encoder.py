"""The encoder: a stack of self-attention and feed-forward layers ("Attention Is All You Need", section 3.1)."""

from typing import Any, NamedTuple

import keras

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.layers.attention import Attended, MultiHeadAttention
from tfk_transformer.layers.feed_forward import FeedForward
from tfk_transformer.layers.layer_norm import LayerNorm
from tfk_transformer.layers.residual import Residual


class Encoded(NamedTuple):
    """What the encoder gives."""

    output: Any  # (B, S, D)
    weights: list  # a float32 (B, H, S, S) for each layer


class OptionsLayer(keras.layers.Layer):
    """Base of the layers that `LayerOptions` describe; these ride along as a plain dictionary when saved.

    Args:
        options: of the layer; of a model's configuration, the layers' options alone are kept.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, options: LayerOptions, **kwargs):
        # Autocast would turn a float32 mask's -1e9 into float16's -inf.
        super().__init__(autocast=False, **kwargs)
        self.options = options.layer_options()

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        return {**super().get_config(), "options": self.options.model_dump(mode="json")}

    @classmethod
    def from_config(cls, config):
        """Make the layer from what `get_config` returned."""
        return cls(**{**config, "options": LayerOptions(**config["options"])})

    def _attention(self, name):
        o = self.options
        return MultiHeadAttention(
            num_heads=o.num_heads,
            key_dim=o.query_width,
            value_dim=o.value_width,
            use_bias=o.attention_bias,
            dropout=o.attention_dropout,
            output_dropout=o.attention_output_dropout,
            scale=o.attention_scale,
            keys_are_values=o.keys_are_values,
            shared_projections=o.shared_projections,
            dtype=self.dtype_policy,
            name=name,
        )

    def _feed_forward(self):
        o = self.options
        return FeedForward(o.ff_width, o.ff_dropout, o.ff_activation, dtype=self.dtype_policy, name="feed_forward")

    def _residual(self, name):
        o = self.options
        return Residual(o.norm, o.dropout, o.norm_epsilon, dtype=self.dtype_policy, name=name)

    def _final_norm(self, wanted):
        """Return the norm after a stack; unless told otherwise, only pre-norm layers need one: they leave a bare sum."""
        if wanted or (wanted is None and self.options.norm == "pre"):
            return LayerNorm(epsilon=self.options.norm_epsilon, dtype=self.dtype_policy, name="final_norm")
        return keras.layers.Identity(dtype=self.dtype_policy, name="final_norm")

    def _build_all(self, *layers):
        for layer in layers:
            layer.build((None, None, self.options.model_dim))


@keras.saving.register_keras_serializable(package="tfk_transformer")
class EncoderLayer(OptionsLayer):
    """Self-attention, then feed-forward, each inside a residual connection.

    Args:
        options: of the layer.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, options, **kwargs):
        super().__init__(options, **kwargs)
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
class Encoder(OptionsLayer):
    """A stack of encoder layers over embedded tokens.

    Args:
        options: of each layer.
        num_layers: how many there are.
        final_norm: whether the stack's output is normalised; None: only where norm is "pre".
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, options, num_layers, final_norm=None, **kwargs):
        super().__init__(options, **kwargs)
        self.num_layers = num_layers
        self.normalised = final_norm
        self.layers = [EncoderLayer(options, dtype=self.dtype_policy, name=f"layer_{i}") for i in range(num_layers)]
        self.final_norm = self._final_norm(final_norm)

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

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        return {**super().get_config(), "num_layers": self.num_layers, "final_norm": self.normalised}
