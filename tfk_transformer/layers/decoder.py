"""The decoder: one stack with two ways through it, the full pass of training and the cached step of search."""

from typing import Any, NamedTuple

import keras
from keras import ops

from tfk_transformer.layers.attention import KeyValue
from tfk_transformer.layers.encoder import OptionsLayer


class Decoded(NamedTuple):
    """What a decoder layer or the stack gives; for the stack, one entry a layer in the lists."""

    output: Any  # (B, T, D)
    self_weights: Any  # float32 (B, H, T, T)
    cross_weights: Any  # float32 (B, H, T, S); None of a layer without cross-attention


class Stepped(NamedTuple):
    """What a cached step gives; for the stack, one entry a layer in the lists."""

    output: Any  # (B, M, D)
    cache: Any  # KeyValue of (B, H, (t+1)*M, …)
    cross_weights: Any  # float32 (B, H, M, S); None without cross-attention


@keras.saving.register_keras_serializable(package="tfk_transformer")
class DecoderLayer(OptionsLayer):
    """Causal self-attention, attention to the encoder's output, feed-forward, each inside a residual connection.

    Args:
        options: of the layer.
        cross_attention: whether there is an encoder to attend to; False makes the layer of a decoder that stands alone.
        **kwargs: of `keras.layers.Layer`.
    """

    # No argument is named after another with "_mask" behind: Keras fills such arguments with its own implicit masks.

    def __init__(self, options, cross_attention=True, **kwargs):
        super().__init__(options, **kwargs)
        self.self_attention = self._attention("self_attention")
        self.self_residual = self._residual("self_residual")
        self.cross_attention = self._attention("cross_attention") if cross_attention else None
        self.cross_residual = self._residual("cross_residual") if cross_attention else None
        self.feed_forward = self._feed_forward()
        self.ff_residual = self._residual("ff_residual")

    def build(self, x_shape, memory_shape=None, attention_mask_shape=None, cross_attention_mask_shape=None):
        """Make all weights."""
        self._build_all(self.self_attention, self.self_residual, self.feed_forward, self.ff_residual)
        if self.cross_attention:
            self._build_all(self.cross_attention, self.cross_residual)

    def call(self, x, memory=None, attention_mask=None, cross_attention_mask=None, training=None) -> Decoded:
        """Decode all positions at once.

        Args:
            x: (B, T, D).
            memory: the encoder's output, projected: keys (B, H, S, K) and values (B, H, S, V).
            attention_mask: additive, broadcastable to (B, H, T, T).
            cross_attention_mask: additive, broadcastable to (B, H, T, S).
            training: whether dropout is on.
        """
        query, own = self.self_attention.project_self(self.self_residual.enter(x))
        attended = self.self_attention.attend(query, own, attention_mask=attention_mask, training=training)
        x = self.self_residual(x, attended.output, training=training)
        x, cross_weights = self._read_memory(x, memory, cross_attention_mask, training)
        return Decoded(self._feed(x, training), attended.weights, cross_weights)

    def step(self, x, past: KeyValue, memory: KeyValue | None = None, lineage=None, cross_attention_mask=None) -> Stepped:
        """Decode one position more for M beams a sentence.

        The beams of a sentence are its queries, in self-attention too: the keys and values of all its beams stand side by
        side, and a mask shows each beam those it descends from. So nothing is copied when a beam takes another's place, and
        the sentence's source stands once however many beams there are.

        Args:
            x: (B, M, D).
            past: keys (B, H, t*M, K) and values (B, H, t*M, V): position by position, its M beams side by side.
            memory: keys (B, H, S, K) and values (B, H, S, V).
            lineage: additive, broadcastable to (B, H, M, (t+1)*M), see `masks.own_mask`; None hides nothing, for M = 1.
            cross_attention_mask: additive, broadcastable to (B, H, M, S).
        """
        query, new = self.self_attention.project_self(self.self_residual.enter(x))
        cache = past.append(new)
        x = self.self_residual(x, self.self_attention.attend(query, cache, attention_mask=lineage).output)
        x, cross_weights = self._read_memory(x, memory, cross_attention_mask)
        return Stepped(self._feed(x), cache, cross_weights)

    def _read_memory(self, x, memory, cross_attention_mask, training=None):
        if self.cross_attention is None:
            return x, None
        query = self.cross_attention.project_query(self.cross_residual.enter(x))
        attended = self.cross_attention.attend(query, memory, attention_mask=cross_attention_mask, training=training)
        return self.cross_residual(x, attended.output, training=training), attended.weights

    def _feed(self, x, training=None):
        y = self.feed_forward(self.ff_residual.enter(x), training=training)
        return self.ff_residual(x, y, training=training)

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        return {**super().get_config(), "cross_attention": self.cross_attention is not None}


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Decoder(OptionsLayer):
    """A stack of decoder layers over embedded tokens.

    Args:
        options: of each layer.
        num_layers: how many there are.
        final_norm: whether the stack's output is normalised; None: only where norm is "pre".
        cross_attention: whether there is an encoder to attend to.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, options, num_layers, final_norm=None, cross_attention=True, **kwargs):
        super().__init__(options, **kwargs)
        self.num_layers = num_layers
        self.normalised = final_norm
        self.cross_attention = cross_attention
        self.layers = [DecoderLayer(options, cross_attention, dtype=self.dtype_policy, name=f"layer_{i}") for i in range(num_layers)]
        self.final_norm = self._final_norm(final_norm)

    def build(self, x_shape, encoded_shape=None, attention_mask_shape=None, cross_attention_mask_shape=None):
        """Make all weights."""
        self._build_all(*self.layers, self.final_norm)

    def project_memory(self, encoded) -> list[KeyValue | None]:
        """Project the encoder's output (B, S, D) once for each layer."""
        return [layer.cross_attention.project_context(encoded) if self.cross_attention else None for layer in self.layers]

    def empty_cache(self, batch) -> list[KeyValue]:
        """Return each layer's cache before the first step: keys (B, H, 0, K), values (B, H, 0, V)."""
        o = self.options
        widths = (o.query_width, o.value_width)
        return [KeyValue(*(ops.zeros((batch, o.num_heads, 0, width), dtype=self.compute_dtype) for width in widths)) for _ in self.layers]

    def call(self, x, encoded=None, attention_mask=None, cross_attention_mask=None, training=None) -> Decoded:
        """Decode all positions at once; see `DecoderLayer.call`, with `encoded` (B, S, D) the encoder's output."""
        self_weights, cross_weights = [], []
        for layer, memory in zip(self.layers, self.project_memory(encoded), strict=True):
            x, own, cross = layer(x, memory, attention_mask=attention_mask, cross_attention_mask=cross_attention_mask, training=training)
            self_weights.append(own)
            cross_weights.append(cross)
        return Decoded(self.final_norm(x), self_weights, cross_weights)

    def step(self, x, cache: list[KeyValue], memory: list[KeyValue | None], lineage=None, cross_attention_mask=None) -> Stepped:
        """Decode one position more for M beams a sentence; see `DecoderLayer.step`."""
        grown, attentions = [], []
        for layer, past, layer_memory in zip(self.layers, cache, memory, strict=True):
            x, layer_cache, cross_weights = layer.step(x, past, layer_memory, lineage, cross_attention_mask)
            grown.append(layer_cache)
            attentions.append(cross_weights)
        return Stepped(self.final_norm(x), grown, attentions)

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        own = {"num_layers": self.num_layers, "final_norm": self.normalised, "cross_attention": self.cross_attention}
        return {**super().get_config(), **own}
