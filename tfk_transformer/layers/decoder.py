"""The decoder: it runs over all positions at once in training, one at a time in search."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.layers.attention import Attended, KeyValue
from tfk_transformer.layers.encoder import OptionsLayer, Stack
from tfk_transformer.layers.ssru import SSRU


class Decoded(NamedTuple):
    """The result of a decoder layer or of the stack, whose weights are lists of the layers'."""

    output: Tensor  # (B, T, D)
    self_weights: Tensor  # float32 (B, H, T, T); (B, 0, T, T) with an SSRU, which has no heads
    cross_weights: Tensor  # float32 (B, H, T, S); () without cross-attention


class Stepped(NamedTuple):
    """The result of a decoding step. The stack's cache and weights are lists of the layers'."""

    output: Tensor  # (B, M, D)
    cache: Tensor  # KeyValue of (B, H, (t+1)*M, …), or the states of an SSRU (B, 1, M, D)
    cross_weights: Tensor  # float32 (B, H, M, S); () without cross-attention


@keras.saving.register_keras_serializable(package="tfk_transformer")
class DecoderLayer(OptionsLayer):
    """Causal self-attention, cross-attention and feed-forward, each in a residual connection.

    A subclass can replace how target positions are combined: `mix` in a full pass, and `mix_next`
    in a decoding step. The results of decoding step by step must equal a full pass.

    Args:
        options: options of the layer.
        cross_attention: whether the layer attends to an encoder's output. Defaults to True.
        ssru_max_length: the `max_length` of an SSRU in place of self-attention, see `ssru.SSRU`.
            Defaults to None: self-attention.
        **kwargs: `output_only`, see `OptionsLayer`, and arguments of `keras.layers.Layer`.
    """

    # No argument has the name of another one followed by "_mask": Keras would pass its implicit
    # masks to it.

    def __init__(
        self,
        options: LayerOptions,
        cross_attention: bool = True,
        ssru_max_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(options, **kwargs)
        self.ssru_max_length = ssru_max_length
        # A layer has one of the two.
        self.self_attention: Tensor = None
        self.ssru: Tensor = None
        if ssru_max_length is None:
            self.self_attention = self._attention("self_attention")
        else:
            self.ssru = SSRU(ssru_max_length, dtype=self.dtype_policy, name="ssru")
        self.self_residual = self._residual("self_residual")
        self.cross_attention = self._attention("cross_attention") if cross_attention else None
        self.cross_residual = self._residual("cross_residual") if cross_attention else None
        self._add_feed_forward()

    def build(
        self,
        x_shape: Shape | None = None,
        memory_shape: object = None,
        attention_mask_shape: Shape | None = None,
        cross_attention_mask_shape: Shape | None = None,
    ) -> None:
        """Make all weights. Their shapes follow from the options."""
        mixer = self.self_attention or self.ssru
        self._build_all(mixer, self.self_residual, self.feed_forward, self.ff_residual)
        if self.cross_attention:
            self._build_all(self.cross_attention, self.cross_residual)

    def call(
        self,
        x: Tensor,
        memory: KeyValue | None = None,
        attention_mask: Tensor = None,
        cross_attention_mask: Tensor = None,
        training: bool | None = None,
    ) -> Decoded:
        """Decode all positions at once.

        Args:
            x: (B, T, D).
            memory: the projected encoder output: keys (B, H, S, K) and values (B, H, S, V).
            attention_mask: booleans, True for a visible position, or floats that are added to the
                scores, broadcastable to (B, H, T, T); see `masks.as_additive`. The layer adds no
                causal mask itself. An SSRU needs no mask: it reads earlier positions only.
            cross_attention_mask: the same for cross-attention, broadcastable to (B, H, T, S).
            training: whether dropout is applied.
        """
        attended = self.mix(self.self_residual.enter(x), attention_mask, training)
        x = self.self_residual(x, attended.output, training=training)
        x, cross_weights = self._attend_to_memory(x, memory, cross_attention_mask, training)
        output = self._apply_feed_forward(x, training)
        return self._result(Decoded(output, attended.weights, cross_weights))

    def step(
        self,
        x: Tensor,
        past: Tensor,
        memory: KeyValue | None = None,
        lineage: Tensor = None,
        cross_attention_mask: Tensor = None,
    ) -> Stepped:
        """Decode the next position for M beams of each sentence.

        The beams of a sentence are queries of the same row, also in self-attention. The cache holds
        the keys and values of all beams, and a mask shows each beam only the beams that it descends
        from. So nothing is copied when one beam replaces another, and the source is stored once for
        any number of beams.

        Args:
            x: (B, M, D).
            past: the cache, keys (B, H, t*M, K) and values (B, H, t*M, V), sorted by position and
                then by beam; or the states of an SSRU, see `ssru.SSRU.step`.
            memory: keys (B, H, S, K) and values (B, H, S, V).
            lineage: mask broadcastable to (B, H, M, (t+1)*M), see `masks.beam_mask`. Defaults
                to None, which hides nothing and is correct for M = 1.
            cross_attention_mask: mask broadcastable to (B, H, M, S).
        """
        mixed, cache = self.mix_next(self.self_residual.enter(x), past, lineage)
        x = self.self_residual(x, mixed)
        x, cross_weights = self._attend_to_memory(x, memory, cross_attention_mask)
        return Stepped(self._apply_feed_forward(x), cache, cross_weights)

    def mix(self, x: Tensor, attention_mask: Tensor, training: bool | None) -> Attended:
        """Combine all target positions of (B, T, D); see `call`."""
        if self.ssru:
            batch, length, _ = ops.shape(x)
            return Attended(self.ssru(x), ops.zeros((batch, 0, length, length), dtype="float32"))
        query, context = self.self_attention.project_self(x)
        return self.self_attention.attend(query, context, attention_mask, training)

    def mix_next(self, x: Tensor, past: Tensor, lineage: Tensor) -> tuple[Tensor, Tensor]:
        """Combine the next position (B, M, D) of M beams with the earlier ones; see `step`.

        The position of the tokens is the number of keys in the cache divided by M, if the model has
        no target prefix.

        Returns:
            The combined position (B, M, D), and the cache with this position.
        """
        if self.ssru:
            return self.ssru.step(x, past, lineage)
        query, new = self.self_attention.project_self(x)
        cache = past.append(new)
        return self.self_attention.attend(query, cache, lineage).output, cache

    def empty_cache(self, batch: Tensor) -> Tensor:
        """Return the cache before the first step; see `Decoder.empty_cache`."""
        o = self.options
        if self.ssru:
            return ops.zeros((batch, 1, 0, o.model_dim), dtype="float32")
        shapes = [(batch, o.num_heads, 0, width) for width in (o.query_width, o.value_width)]
        return KeyValue(*[ops.zeros(shape, dtype=self.compute_dtype) for shape in shapes])

    def _attend_to_memory(
        self,
        x: Tensor,
        memory: KeyValue | None,
        cross_attention_mask: Tensor,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        if self.cross_attention is None or self.cross_residual is None:
            return x, ()  # Keras refuses None among the results of a symbolic call
        if memory is None:
            raise ValueError(
                "memory: expected the projected encoder output of a layer with cross-attention, "
                "got None."
            )
        query = self.cross_attention.project_query(self.cross_residual.enter(x))
        attended = self.cross_attention.attend(query, memory, cross_attention_mask, training)
        return self.cross_residual(x, attended.output, training=training), attended.weights

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "cross_attention": self.cross_attention is not None,
            "ssru_max_length": self.ssru_max_length,
        }


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Decoder(Stack):
    """A stack of decoder layers over embedded tokens.

    A subclass can replace the class of the layers, `layer_type`.

    Args:
        options: options of each layer.
        num_layers: number of layers.
        final_norm: whether the output of the stack is normalized. Defaults to None: only if
            `options.norm` is "pre".
        cross_attention: whether the layers attend to an encoder's output. Defaults to True.
        ssru_max_length: see `DecoderLayer`. Defaults to None.
        relative: options of relative positions, see `Encoder`. Defaults to None.
        **kwargs: `output_only`, see `OptionsLayer`, and arguments of `keras.layers.Layer`.
    """

    layer_type = DecoderLayer

    def __init__(
        self,
        options: LayerOptions,
        num_layers: int,
        final_norm: bool | None = None,
        cross_attention: bool = True,
        ssru_max_length: int | None = None,
        relative: tuple[int, int, bool] | None = None,
        **kwargs: Any,
    ) -> None:
        layer_arguments = (cross_attention, ssru_max_length)
        super().__init__(options, num_layers, final_norm, relative, layer_arguments, **kwargs)
        self.cross_attention = cross_attention
        self.ssru_max_length = ssru_max_length

    def build(
        self,
        x_shape: Shape | None = None,
        encoded_shape: Shape | None = None,
        attention_mask_shape: Shape | None = None,
        cross_attention_mask_shape: Shape | None = None,
    ) -> None:
        """Make all weights. Their shapes follow from the options."""
        self._build_all(*self.layers, self.final_norm, *self.relative_positions)

    def project_memory(self, encoded: Tensor) -> list[Tensor]:
        """Project the encoder's output (B, S, D) to keys and values of each layer.

        The result contains None for each layer without cross-attention.
        """
        if not self.cross_attention:
            return [None] * self.num_layers
        if encoded is None:
            raise ValueError(
                "encoded: expected the encoder's output (B, S, D) for a decoder with "
                "cross-attention, got None."
            )
        return [layer.cross_attention.project_context(encoded) for layer in self.layers]

    def empty_cache(self, batch: Tensor) -> list[Tensor]:
        """Return each layer's empty cache.

        It has keys (B, H, 0, K) and values (B, H, 0, V), or the states of an SSRU (B, 1, 0, D).
        """
        return [layer.empty_cache(batch) for layer in self.layers]

    def call(
        self,
        x: Tensor,
        encoded: Tensor = None,
        attention_mask: Tensor = None,
        cross_attention_mask: Tensor = None,
        training: bool | None = None,
    ) -> Decoded:
        """Decode all positions at once; see `DecoderLayer.call`.

        `encoded` (B, S, D) is the output of the encoder.
        """
        self_weights = []
        cross_weights = []
        masks = self._masks(attention_mask, x=x)
        memories = self.project_memory(encoded)
        for layer, memory, mask in zip(self.layers, memories, masks, strict=True):
            x, self_attention, cross_attention = layer(
                x,
                memory,
                attention_mask=mask,
                cross_attention_mask=cross_attention_mask,
                training=training,
            )
            self_weights.append(self_attention)
            cross_weights.append(cross_attention)
        return self._result(Decoded(self.final_norm(x), self_weights, cross_weights))

    def step(
        self,
        x: Tensor,
        cache: list[Tensor],
        memory: Sequence[KeyValue | None],
        lineage: Tensor = None,
        cross_attention_mask: Tensor = None,
        positions: tuple[Tensor, Tensor] | None = None,
    ) -> Stepped:
        """Decode the next position for M beams of each sentence; see `DecoderLayer.step`.

        A decoder with relative positions needs the `positions` of the tokens: (M,), or (1,) for a
        position that all share, and of the keys in the new cache ((t+1)*M,).
        """
        new_cache = []
        cross_weights = []
        masks = self._masks(lineage, positions)
        for layer, past, layer_memory, mask in zip(self.layers, cache, memory, masks, strict=True):
            x, layer_cache, layer_weights = layer.step(
                x, past, layer_memory, mask, cross_attention_mask
            )
            new_cache.append(layer_cache)
            cross_weights.append(layer_weights)
        return Stepped(self.final_norm(x), new_cache, cross_weights)

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "relative": list(self.relative) if self.relative else None,
            "final_norm": self.normalised,
            "cross_attention": self.cross_attention,
            "ssru_max_length": self.ssru_max_length,
        }
