"""The encoder-decoder model: embeddings, encoder, decoder, and the projection to the vocabulary."""

from typing import Any, NamedTuple

import keras
from keras import ops

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.layers.attention import KeyValue
from tfk_transformer.layers.decoder import Decoded
from tfk_transformer.layers.encoder import Encoded, Encoder
from tfk_transformer.layers.masks import additive_mask, causal_mask, padding_mask
from tfk_transformer.models.base import Step, Stepper, TokenModel, check_inputs


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
class Transformer(TokenModel):
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
        shared = config.tie_embeddings == "all"
        self.source_embedding = self._embedding("source_embedding", config.source_vocab_size, tied=shared)
        self.source_positions = self._positions("source_positions")
        self.encoder = Encoder(config, config.encoder_layers, config.encoder_final_norm, dtype=self.dtype_policy, name="encoder")
        self._add_decoder(config.target_vocab_size, True, self.source_embedding if shared else None)

    def build(self, input_shape=None):
        """Make all weights; their shapes come from the configuration alone."""
        layers = (self.source_positions, self.target_positions, self.encoder, self.decoder, self.projection)
        self._build_all((self.source_embedding, self.target_embedding), layers)

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

    def step(self, tokens, position, cache: list[KeyValue], memory: Memory, lineage=None) -> Step:
        """Decode one position more for M beams a sentence.

        Args:
            tokens: ids (B, M), the last token of each beam.
            position: its position, a scalar; the start token has 0.
            cache: for each layer what came before, from `decoder.empty_cache(B)` and then from the step before.
            memory: from `remember`.
            lineage: additive mask (B, 1, M, (position+1)*M) of what each beam descends from; None: M is 1.

        Returns:
            Logits (B, M, target_vocab_size), the grown cache, and the attention to the source (B, M, S).
        """
        embedded = self.target_positions.at(self.target_embedding(tokens), position)
        # Changes nothing, but TensorFlow 2.21 with oneDNN fuses a mask that one product alone reads, as in a decoder of a single
        # layer, in such a way that the whole loop of a search gives nothing.
        mask = ops.minimum(memory.mask, 0.0) if self.config.decoder_layers == 1 else memory.mask
        output, cache, cross_weights = self.decoder.step(embedded, cache, memory.layers, lineage, mask)
        return self._to_step(output, cache, ops.mean(cross_weights[-1], axis=1))

    def start_search(self, source, use_cache=True) -> Stepper:
        """Read source ids (B, S) for a search.

        Args:
            source: ids (B, S).
            use_cache: whether a step computes the last position alone, with the keys and values of those before; else it
                computes the whole prefix anew.
        """
        if use_cache:
            return Stepper(self._cached_step, self.decoder.empty_cache, self.remember(source))

        def step(beams, cache, memory):
            def decode(target, sentences):
                return self._decode(target, *(ops.take(part, sentences, axis=0) for part in memory))

            return self._step_by_full_pass(beams.ids, decode)

        return Stepper(step, lambda batch: [], (self.encode(source).output, padding_mask(source)))

    def _run(self, inputs, training):
        check_inputs(inputs, ("source", "target"), ("source_mask",))
        source_mask = additive_mask(inputs["source_mask"]) if "source_mask" in inputs else padding_mask(inputs["source"])
        encoded = self.encode(inputs["source"], training, source_mask)
        return encoded, self._decode(inputs["target"], encoded.output, source_mask, training)

    def _decode(self, target, encoded, source_mask, training=None) -> Decoded:
        # Target padding stands at the end, where the causal mask alone hides it from every real token.
        mask = causal_mask(ops.shape(target)[1])
        embedded = self._embed(target, training)
        return self.decoder(embedded, encoded, attention_mask=mask, cross_attention_mask=source_mask, training=training)
