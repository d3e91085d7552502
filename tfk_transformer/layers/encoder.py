"""The encoder, a stack of layers ("Attention Is All You Need", section 3.1)."""

from typing import NamedTuple, Self

import keras

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.layers.attention import Attended, MultiHeadAttention
from tfk_transformer.layers.feed_forward import FeedForward
from tfk_transformer.layers.layer_norm import LayerNorm
from tfk_transformer.layers.residual import Residual


class Encoded(NamedTuple):
    """The result of the encoder."""

    output: Tensor  # (B, S, D)
    weights: list[Tensor]  # for each layer float32 (B, H, S, S)


class OptionsLayer(keras.layers.Layer):
    """Base of the layers that `LayerOptions` describe. The options are saved as a plain dictionary.

    Args:
        options: options of the layer, or a model's configuration, whose layer options are used.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, options: LayerOptions, **kwargs: object) -> None:
        # Autocast would turn a float32 mask's -1e9 into float16's -inf.
        super().__init__(autocast=False, **kwargs)
        self.options = options.layer_options()

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "options": self.options.model_dump(mode="json")}

    @classmethod
    def from_config(cls, config: dict[str, Tensor]) -> Self:
        """Make the layer from the result of `get_config`."""
        return cls(**{**config, "options": LayerOptions(**config["options"])})

    def compute_output_shape(
        self, x_shape: Shape, *shapes: Shape | None, **named_shapes: Shape | None
    ) -> Shape:
        """Return the shape of the field `output`, which is the shape of `x`."""
        return x_shape

    def compute_output_spec(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        """Return the shapes and types of all fields."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def _attention(self, name: str) -> MultiHeadAttention:
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

    def _feed_forward(self) -> FeedForward:
        o = self.options
        return FeedForward(
            o.ff_width, o.ff_dropout, o.ff_activation, dtype=self.dtype_policy, name="feed_forward"
        )

    def _residual(self, name: str) -> Residual:
        o = self.options
        return Residual(o.norm, o.dropout, o.norm_epsilon, dtype=self.dtype_policy, name=name)

    def _final_norm(self, final_norm: bool | None) -> keras.layers.Layer:
        """Return the layer norm after a stack.

        By default, only pre-norm layers have one, since their output is a sum without a norm.
        """
        if final_norm or (final_norm is None and self.options.norm == "pre"):
            return LayerNorm(
                epsilon=self.options.norm_epsilon, dtype=self.dtype_policy, name="final_norm"
            )
        return keras.layers.Identity(dtype=self.dtype_policy, name="final_norm")

    def _build_all(self, *layers: keras.layers.Layer) -> None:
        for layer in layers:
            layer.build((None, None, self.options.model_dim))


@keras.saving.register_keras_serializable(package="tfk_transformer")
class EncoderLayer(OptionsLayer):
    """Self-attention, then feed-forward, each inside a residual connection.

    Args:
        options: options of the layer.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, options: LayerOptions, **kwargs: object) -> None:
        super().__init__(options, **kwargs)
        self.attention = self._attention("attention")
        self.attention_residual = self._residual("attention_residual")
        self.feed_forward = self._feed_forward()
        self.ff_residual = self._residual("ff_residual")

    def build(
        self, x_shape: Shape | None = None, attention_mask_shape: Shape | None = None
    ) -> None:
        """Make all weights. Their shapes follow from the options."""
        self._build_all(
            self.attention, self.attention_residual, self.feed_forward, self.ff_residual
        )

    def call(
        self, x: Tensor, attention_mask: Tensor = None, training: bool | None = None
    ) -> Attended:
        """Map (B, S, D) to an output of this shape and weights (B, H, S, S); see `Encoder.call`."""
        attended = self.attention(
            self.attention_residual.enter(x), attention_mask=attention_mask, training=training
        )
        x = self.attention_residual(x, attended.output, training=training)
        y = self.feed_forward(self.ff_residual.enter(x), training=training)
        return Attended(self.ff_residual(x, y, training=training), attended.weights)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Encoder(OptionsLayer):
    """A stack of encoder layers over embedded tokens.

    Args:
        options: options of each layer.
        num_layers: number of layers.
        final_norm: whether the output of the stack is normalized. Defaults to None: only if
            `options.norm` is "pre".
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        options: LayerOptions,
        num_layers: int,
        final_norm: bool | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(options, **kwargs)
        self.num_layers = num_layers
        self.normalised = final_norm
        self.layers = [
            EncoderLayer(options, dtype=self.dtype_policy, name=f"layer_{i}")
            for i in range(num_layers)
        ]
        self.final_norm = self._final_norm(final_norm)

    def build(
        self, x_shape: Shape | None = None, attention_mask_shape: Shape | None = None
    ) -> None:
        """Make all weights. Their shapes follow from the options."""
        self._build_all(*self.layers, self.final_norm)

    def call(
        self, x: Tensor, attention_mask: Tensor = None, training: bool | None = None
    ) -> Encoded:
        """Encode embedded tokens.

        Args:
            x: (B, S, D).
            attention_mask: booleans, True for a visible position, or floats that are added to the
                scores, broadcastable to (B, H, S, S); see `masks.as_additive`.
            training: whether dropout is applied.
        """
        weights = []
        for layer in self.layers:
            x, layer_weights = layer(x, attention_mask=attention_mask, training=training)
            weights.append(layer_weights)
        return Encoded(self.final_norm(x), weights)

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "final_norm": self.normalised,
        }
