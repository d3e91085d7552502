"""The encoder ("Attention Is All You Need", section 3.1), and the base classes of both stacks."""

from typing import Any, Self

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.layers.attention import Attended, MultiHeadAttention
from tfk_transformer.layers.base import BaseLayer
from tfk_transformer.layers.feed_forward import FeedForward
from tfk_transformer.layers.masks import as_additive
from tfk_transformer.layers.positions import RelativePositions
from tfk_transformer.layers.residual import Residual, make_norm


class OptionsLayer(BaseLayer):
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

    def compute_output_spec(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        """Return the shapes and types of all fields."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def _result(self, result: Tensor) -> Tensor:
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

    def _residual(self, name: str) -> Residual:
        o = self.options
        return Residual(
            o.norm, o.dropout, o.norm_epsilon, o.norm_type, dtype=self.dtype_policy, name=name
        )

    def _add_feed_forward(self) -> None:
        """Make the last sublayer."""
        o = self.options
        self.feed_forward = self.feed_forward_type(
            o.ff_width,
            o.ff_dropout,
            o.ff_activation,
            o.ff_gated,
            o.ff_bias,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.ff_residual = self._residual("ff_residual")

    def _apply_feed_forward(self, x: Tensor, training: bool | None = None) -> Tensor:
        y = self.feed_forward(self.ff_residual.enter(x), training=training)
        return self.ff_residual(x, y, training=training)

    def _build_all(self, *layers: keras.layers.Layer) -> None:
        for layer in layers:
            layer.build((None, None, self.options.model_dim))


class Stack(OptionsLayer):
    """Base of the encoder and the decoder: layers of `layer_type`, and a norm after them.

    If there are relative positions, the layers share a table of biases, or each has one.
    """

    layer_type: Any
    bidirectional = False  # whether relative positions distinguish later keys

    def __init__(
        self,
        options: LayerOptions,
        num_layers: int,
        final_norm: bool | None,
        relative: tuple[int, int, bool] | None,
        layer_arguments: tuple[Any, ...] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options, **kwargs)
        dtype = {"dtype": self.dtype_policy}
        o = self.options
        self.num_layers = num_layers
        self.normalised = final_norm
        self.relative = tuple(relative) if relative else None
        self.layers: list[Tensor] = [
            self.layer_type(options, *layer_arguments, **dtype, name=f"layer_{i}")
            for i in range(num_layers)
        ]
        # The output of pre-norm layers is a sum without a norm.
        if final_norm or (final_norm is None and o.normalizes_input):
            self.final_norm = make_norm(
                o.norm_type, o.norm_epsilon, self.dtype_policy, "final_norm"
            )
        else:
            self.final_norm = keras.layers.Identity(**dtype, name="final_norm")
        self.relative_positions: list[RelativePositions] = []
        if relative:
            buckets, max_distance, by_layer = relative
            names = ["relative_positions"]
            if by_layer:
                names = [f"relative_positions_{i}" for i in range(num_layers)]
            self.relative_positions = [
                RelativePositions(
                    o.num_heads, buckets, max_distance, self.bidirectional, **dtype, name=name
                )
                for name in names
            ]

    def _masks(
        self,
        attention_mask: Tensor,
        positions: tuple[Tensor, Tensor] | None = None,
        x: Tensor = None,
    ) -> list[Tensor]:
        """Return each layer's mask for self-attention, with the biases of relative positions.

        These need the positions of the queries (T,) and of the keys (S,), or for a full pass only
        its input x (B, T, D). An `attention_mask` of None hides nothing.
        """
        masks = [attention_mask]
        if self.relative_positions:
            queries, keys = positions or (ops.arange(ops.shape(x)[1]),) * 2
            masks = [table(queries, keys) for table in self.relative_positions]
            if attention_mask is not None:
                mask = as_additive(attention_mask)
                masks = [mask + bias for bias in masks]
        return masks if len(masks) == self.num_layers else masks * self.num_layers


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
        self._add_feed_forward()

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
        return self._result(Attended(self._apply_feed_forward(x, training), attended.weights))


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Encoder(Stack):
    """A stack of encoder layers over embedded tokens.

    A subclass can replace the class of the layers, `layer_type`.

    Args:
        options: options of each layer.
        num_layers: number of layers.
        final_norm: whether the output of the stack is normalized. Defaults to None: only if
            `options.norm` is "pre".
        relative: options of relative positions: number of buckets of distances, the distance in
            tokens from which on all positions share a bucket, and whether each layer has a table.
            Defaults to None: no relative positions.
        **kwargs: `output_only`, see `OptionsLayer`, and arguments of `keras.layers.Layer`.
    """

    layer_type = EncoderLayer
    bidirectional = True

    def __init__(
        self,
        options: LayerOptions,
        num_layers: int,
        final_norm: bool | None = None,
        relative: tuple[int, int, bool] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(options, num_layers, final_norm, relative, **kwargs)

    def build(
        self, x_shape: Shape | None = None, attention_mask_shape: Shape | None = None
    ) -> None:
        """Make all weights. Their shapes follow from the options."""
        self._build_all(*self.layers, self.final_norm, *self.relative_positions)

    def call(
        self, x: Tensor, attention_mask: Tensor = None, training: bool | None = None
    ) -> Attended:
        """Encode embedded tokens.

        Args:
            x: (B, S, D).
            attention_mask: booleans, True for a visible position, or floats that are added to the
                scores, broadcastable to (B, H, S, S); see `masks.as_additive`.
            training: whether dropout is applied.

        Returns:
            The output (B, S, D), and a list of each layer's attention weights (B, H, S, S).
        """
        weights = []
        masks = self._masks(attention_mask, x=x)
        for layer, mask in zip(self.layers, masks, strict=True):
            x, layer_weights = layer(x, attention_mask=mask, training=training)
            weights.append(layer_weights)
        return self._result(Attended(self.final_norm(x), weights))

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "final_norm": self.normalised,
            "relative": list(self.relative) if self.relative else None,
        }
