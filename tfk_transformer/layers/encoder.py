"""The encoder, a stack of layers ("Attention Is All You Need", section 3.1)."""

from typing import Any, NamedTuple, Self

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.layers.attention import Attended, MultiHeadAttention
from tfk_transformer.layers.feed_forward import FeedForward
from tfk_transformer.layers.layer_norm import NORMS
from tfk_transformer.layers.relative_positions import (
    RelativeOptions,
    RelativePositions,
    biased_masks,
)
from tfk_transformer.layers.residual import Residual


class Encoded(NamedTuple):
    """The result of the encoder."""

    output: Tensor  # (B, S, D)
    weights: list[Tensor]  # for each layer float32 (B, H, S, S)


class OptionsLayer(keras.layers.Layer):
    """Base of the layers that `LayerOptions` describe. The options are saved as a plain dictionary.

    A subclass can replace the classes of its layers, `attention_type` and `feed_forward_type`.

    Args:
        options: options of the layer, or a model's configuration, whose layer options are used.
        output_only: whether the layer returns only its output (B, T, D), as `keras.Sequential`
            needs, instead of a named tuple that also has the attention weights. Defaults to False.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    attention_type = MultiHeadAttention
    feed_forward_type = FeedForward

    def __init__(
        self, options: LayerOptions, *, output_only: bool = False, **kwargs: object
    ) -> None:
        # Autocast would turn a float32 mask's -1e9 into float16's -inf.
        super().__init__(autocast=False, **kwargs)
        self.options = options.layer_options()
        self.output_only = output_only
        self.input_spec = keras.InputSpec(axes={-1: self.options.model_dim}, name="x")

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        options = self.options.model_dump(mode="json")
        return {**super().get_config(), "options": options, "output_only": self.output_only}

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

    def _result(self, result: Tensor) -> Tensor:
        """Return the result of a call, or only its output; see `output_only`."""
        return result.output if self.output_only else result

    def _attention(self, name: str) -> MultiHeadAttention:
        o = self.options
        return self.attention_type(
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
        return self.feed_forward_type(
            o.ff_width,
            o.ff_dropout,
            o.ff_activation,
            o.ff_gated,
            o.ff_bias,
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def _residual(self, name: str) -> Residual:
        o = self.options
        return Residual(
            o.norm, o.dropout, o.norm_epsilon, o.norm_type, dtype=self.dtype_policy, name=name
        )

    def _final_norm(self, final_norm: bool | None) -> keras.layers.Layer:
        """Return the norm after a stack.

        By default, only pre-norm layers have one, since their output is a sum without a norm.
        """
        if final_norm or (final_norm is None and self.options.norm == "pre"):
            return NORMS[self.options.norm_type](
                epsilon=self.options.norm_epsilon, dtype=self.dtype_policy, name="final_norm"
            )
        return keras.layers.Identity(dtype=self.dtype_policy, name="final_norm")

    def _relative_positions(
        self, relative: RelativeOptions | None, num_layers: int, bidirectional: bool
    ) -> list[RelativePositions]:
        """Return the tables of relative positions of a stack: none, one, or one for each layer."""
        if relative is None:
            return []
        names = [f"relative_positions_{i}" for i in range(num_layers)]
        return [
            RelativePositions(
                self.options.num_heads,
                relative.buckets,
                relative.max_distance,
                bidirectional,
                dtype=self.dtype_policy,
                name=name,
            )
            for name in (names if relative.by_layer else ["relative_positions"])
        ]

    def _build_all(self, *layers: keras.layers.Layer) -> None:
        for layer in layers:
            layer.build((None, None, self.options.model_dim))


@keras.saving.register_keras_serializable(package="tfk_transformer")
class EncoderLayer(OptionsLayer):
    """Self-attention, then feed-forward, each inside a residual connection.

    Args:
        options: options of the layer.
        **kwargs: `output_only`, see `OptionsLayer`, and arguments of `keras.layers.Layer`.
    """

    def __init__(self, options: LayerOptions, **kwargs: Any) -> None:
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
        output = self.ff_residual(x, y, training=training)
        return self._result(Attended(output, attended.weights))


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Encoder(OptionsLayer):
    """A stack of encoder layers over embedded tokens.

    A subclass can replace the class of the layers, `layer_type`.

    Args:
        options: options of each layer.
        num_layers: number of layers.
        final_norm: whether the output of the stack is normalized. Defaults to None: only if
            `options.norm` is "pre".
        relative: options of relative positions: numbers of buckets and of the largest distance, and
            whether each layer has a table; see `RelativeOptions`. Defaults to None: no relative
            positions.
        **kwargs: `output_only`, see `OptionsLayer`, and arguments of `keras.layers.Layer`.
    """

    layer_type = EncoderLayer

    def __init__(
        self,
        options: LayerOptions,
        num_layers: int,
        final_norm: bool | None = None,
        relative: tuple[int, int, bool] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(options, **kwargs)
        self.num_layers = num_layers
        self.normalised = final_norm
        self.relative = RelativeOptions(*relative) if relative else None
        self.layers = [
            self.layer_type(options, dtype=self.dtype_policy, name=f"layer_{i}")
            for i in range(num_layers)
        ]
        self.final_norm = self._final_norm(final_norm)
        self.relative_positions = self._relative_positions(self.relative, num_layers, True)

    def build(
        self, x_shape: Shape | None = None, attention_mask_shape: Shape | None = None
    ) -> None:
        """Make all weights. Their shapes follow from the options."""
        self._build_all(*self.layers, self.final_norm, *self.relative_positions)

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
        positions = ops.arange(ops.shape(x)[1]) if self.relative_positions else None
        masks = biased_masks(
            self.relative_positions, attention_mask, positions, positions, self.num_layers
        )
        for layer, mask in zip(self.layers, masks, strict=True):
            x, layer_weights = layer(x, attention_mask=mask, training=training)
            weights.append(layer_weights)
        return self._result(Encoded(self.final_norm(x), weights))

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "final_norm": self.normalised,
            "relative": list(self.relative) if self.relative else None,
        }
