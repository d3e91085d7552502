"""The encoder-decoder model: embeddings, encoder, decoder, and the projection to the vocabulary."""

from typing import Any, NamedTuple

import keras
from keras import ops

from tfk_transformer.attention import KeyValue
from tfk_transformer.config import TransformerConfig
from tfk_transformer.decoder import Decoded, Decoder, Stepped
from tfk_transformer.encoder import Encoded, Encoder
from tfk_transformer.masks import additive_mask, causal_mask, padding_mask
from tfk_transformer.model import ConfiguredModel
from tfk_transformer.projection import VocabularyProjection
from tfk_transformer.records import nearest

INPUTS = ("source", "target", "source_mask")


class Memory(NamedTuple):
    """The source, ready to be attended to at every step of a search."""

    layers: list[KeyValue]  # for each decoder layer keys (B, H, S, K) and values (B, H, S, V)
    mask: Any  # float32 (B, 1, 1, S)


class AttentionMaps(NamedTuple):
    """Attention weights of every layer, each float32 and summing to 1 over its last axis."""

    encoder: list  # (B, H, S, S)
    decoder: list  # (B, H, T, T)
    cross: list  # (B, H, T, S)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Transformer(ConfiguredModel):
    """The encoder-decoder Transformer of "Attention Is All You Need" (arXiv:1706.03762).

    Called on {"source": ids (B, S), "target": ids (B, T)} it returns the logits (B, T, target_vocab_size) of the token
    after each target position, in the compute dtype; with `output="probabilities"` their softmax, float32. Id 0 is padding
    on both sides; "source_mask" (B, S), 1 for real tokens, may say otherwise of the source.

    Args:
        config: sizes and options.
        **kwargs: of `keras.Model`, for instance `dtype="mixed_bfloat16"`.
    """

    config_type = TransformerConfig

    def __init__(self, config: TransformerConfig, **kwargs):
        super().__init__(config, **kwargs)
        c, dtype = config, {"dtype": self.dtype_policy}
        tied = c.tie_embeddings != "none"
        self.source_embedding = self._embedding("source_embedding", c.source_vocab_size, tied=c.tie_embeddings == "all")
        self.target_embedding = self.source_embedding
        if c.tie_embeddings != "all":
            self.target_embedding = self._embedding("target_embedding", c.target_vocab_size, tied)
        self.source_positions = self._positions("source_positions")
        self.target_positions = self._positions("target_positions")
        decoder_options = c
        if c.decoder_attention_dropout is not None:
            decoder_options = c.layer_options(attention_dropout=c.decoder_attention_dropout)
        self.encoder = Encoder(c, c.encoder_layers, c.encoder_final_norm, **dtype, name="encoder")
        self.decoder = Decoder(decoder_options, c.decoder_layers, c.decoder_final_norm, **dtype, name="decoder")
        self.projection = VocabularyProjection(c.target_vocab_size, tied, c.output_bias, **dtype, name="output")

    def build(self, input_shape=None):
        """Make all weights; their shapes come from the configuration alone."""
        embedded = (None, None, self.config.model_dim)
        for embedding in {id(e): e for e in (self.source_embedding, self.target_embedding)}.values():
            embedding.build((None, None))
        for layer in (self.source_positions, self.target_positions, self.encoder, self.decoder, self.projection):
            layer.build(embedded)

    def call(self, inputs, training=None):
        """Return logits or probabilities (B, T, target_vocab_size)."""
        logits = self.logits(self.decode(inputs, training).output)
        if self.config.output == "logits":
            return logits
        return ops.softmax(ops.cast(logits, "float32"), axis=-1)

    def decode(self, inputs, training=None) -> Decoded:
        """Return the decoder's output (B, T, D) and its attention weights, for the same inputs as a call."""
        return self._run(inputs, training)[1]

    def attention_maps(self, inputs) -> AttentionMaps:
        """Return the attention weights of every layer and head for the same inputs as a call."""
        encoded, decoded = self._run(inputs, training=False)
        return AttentionMaps(encoded.weights, decoded.self_weights, decoded.cross_weights)

    def encode(self, source, training=None, attention_mask=None) -> Encoded:
        """Encode source ids (B, S) to `Encoded`, with output (B, S, D); the additive mask is made from ids if not given."""
        embedded = self.source_positions(self.source_embedding(source), training=training)
        mask = padding_mask(source) if attention_mask is None else attention_mask
        return self.encoder(embedded, attention_mask=mask, training=training)

    def remember(self, source) -> Memory:
        """Encode source ids (B, S) and project them for each decoder layer, once for a whole search."""
        return Memory(self.decoder.project_memory(self.encode(source).output), padding_mask(source))

    def step(self, tokens, position, cache: list[KeyValue], memory: Memory) -> Stepped:
        """Decode one position more for M beams a sentence.

        Args:
            tokens: ids (B, M), the last token of each beam.
            position: its position, a scalar; the start token has 0.
            cache: for each layer what came before, from `decoder.empty_cache(B * M)` and then from the step before.
            memory: from `remember`.

        Returns:
            Logits (B, M, target_vocab_size) and the grown cache.
        """
        embedded = self.target_positions.at(self.target_embedding(tokens), position)
        output, cache = self.decoder.step(embedded, cache, memory.layers, memory.mask)
        return Stepped(self.logits(output), cache)

    def logits(self, decoded):
        """Project decoder outputs (B, T, D) to logits (B, T, target_vocab_size)."""
        return self.projection(decoded, self.target_embedding.embeddings if self.projection.tied else None)

    def _run(self, inputs, training):
        _check(inputs)
        source, target = inputs["source"], inputs["target"]
        source_mask = additive_mask(inputs["source_mask"]) if "source_mask" in inputs else padding_mask(source)
        encoded = self.encode(source, training, source_mask)
        embedded = self.target_positions(self.target_embedding(target), training=training)
        # Target padding stands at the end, where the causal mask alone hides it from every real token.
        attention_mask = causal_mask(ops.shape(target)[1])
        decoded = self.decoder(embedded, encoded.output, attention_mask=attention_mask, cross_attention_mask=source_mask, training=training)
        return encoded, decoded


def _check(inputs):
    """Refuse what would be overlooked, such as a mask under another name."""
    for name in inputs:
        if name not in INPUTS:
            raise ValueError(f"inputs: expected {', '.join(INPUTS)}, got '{name}'.{nearest(name, INPUTS)}")
