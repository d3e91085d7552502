"""The Keras model: embeddings, encoder, decoder, and the projection to the vocabulary."""

from typing import Any, NamedTuple

import keras
from keras import ops

from tfk_transformer.attention import KeyValue
from tfk_transformer.config import TransformerConfig
from tfk_transformer.decoder import Decoder, Stepped
from tfk_transformer.encoder import Encoder
from tfk_transformer.masks import causal_mask, padding_mask
from tfk_transformer.positions import Positions


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
class Transformer(keras.Model):
    """The encoder-decoder Transformer of "Attention Is All You Need" (arXiv:1706.03762).

    Called on {"source": ids (B, S), "target": ids (B, T)} it returns the logits (B, T, target_vocab_size) of the token
    after each target position, in the compute dtype. Id 0 is padding on both sides.

    Args:
        config: sizes and options.
        **kwargs: of `keras.Model`, for instance `dtype="mixed_bfloat16"`.
    """

    def __init__(self, config: TransformerConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.source_embedding = self._embedding("source_embedding", config.source_vocab_size, tied=True)
        self.target_embedding = self.source_embedding
        if config.tie_embeddings != "all":
            self.target_embedding = self._embedding("target_embedding", config.target_vocab_size, tied=config.tie_embeddings == "target")
        self.source_positions = self._positions("source_positions")
        self.target_positions = self._positions("target_positions")
        self.embedding_dropout = keras.layers.Dropout(config.dropout, dtype=self.dtype_policy)
        self.encoder = Encoder(config, dtype=self.dtype_policy, name="encoder")
        self.decoder = Decoder(config, dtype=self.dtype_policy, name="decoder")

    def _embedding(self, name, vocab_size, tied):
        # Unit variance after scaling by sqrt(D), and logits of unit variance from normalised activations where tied.
        scale = keras.initializers.RandomNormal(stddev=self.config.model_dim**-0.5)
        return keras.layers.ReversibleEmbedding(
            vocab_size,
            self.config.model_dim,
            tie_weights=tied,
            embeddings_initializer=scale,
            reverse_dtype=self.compute_dtype,
            dtype=self.dtype_policy,
            name=name,
        )

    def _positions(self, name):
        return Positions(self.config.positions, self.config.max_length, dtype=self.dtype_policy, name=name)

    def build(self, input_shape=None):
        """Make all weights; their shapes come from the configuration alone."""
        embedded = (None, None, self.config.model_dim)
        for embedding in {id(e): e for e in (self.source_embedding, self.target_embedding)}.values():
            embedding.build((None, None))
        for layer in (self.source_positions, self.target_positions, self.encoder, self.decoder):
            layer.build(embedded)

    def call(self, inputs, training=None):
        """Return logits (B, T, target_vocab_size)."""
        encoded, decoded = self._run(inputs, training)
        return self.logits(decoded.output)

    def attention_maps(self, inputs) -> AttentionMaps:
        """Return the attention weights of every layer and head for the same inputs as a call."""
        encoded, decoded = self._run(inputs, training=False)
        return AttentionMaps(encoded.weights, decoded.self_weights, decoded.cross_weights)

    def encode(self, source, training=None):
        """Encode source ids (B, S) to `Encoded`, with output (B, S, D)."""
        embedded = self.source_positions(self._scaled(self.source_embedding, source))
        embedded = self.embedding_dropout(embedded, training=training)
        return self.encoder(embedded, attention_mask=padding_mask(source), training=training)

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
        embedded = self.target_positions.at(self._scaled(self.target_embedding, tokens), position)
        output, cache = self.decoder.step(embedded, cache, memory.layers, memory.mask)
        return Stepped(self.logits(output), cache)

    def logits(self, decoded):
        """Project decoder outputs (B, T, D) to logits (B, T, target_vocab_size)."""
        batch, length, model_dim = ops.shape(decoded)
        rows = self.target_embedding(ops.reshape(decoded, (-1, model_dim)), reverse=True)
        return ops.reshape(rows, (batch, length, self.config.target_vocab_size))

    def _run(self, inputs, training):
        source, target = inputs["source"], inputs["target"]
        encoded = self.encode(source, training=training)
        embedded = self.target_positions(self._scaled(self.target_embedding, target))
        embedded = self.embedding_dropout(embedded, training=training)
        # Target padding stands at the end, where the causal mask alone hides it from every real token.
        attention_mask = causal_mask(ops.shape(target)[1])
        decoded = self.decoder(
            embedded, encoded.output, attention_mask=attention_mask, cross_attention_mask=padding_mask(source), training=training
        )
        return encoded, decoded

    def _scaled(self, embedding, ids):
        return embedding(ids) * self.config.model_dim**0.5

    def get_config(self):
        """Return what the constructor needs to make the same layer again."""
        return {**super().get_config(), "config": self.config.model_dump()}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Make the layer from what `get_config` returned."""
        return cls(**{**config, "config": TransformerConfig(**config["config"])})
