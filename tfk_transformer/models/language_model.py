"""A decoder that stands alone: it continues a sequence."""

import keras
from keras import ops

from tfk_transformer.config.model_options import LanguageModelConfig
from tfk_transformer.layers.attention import KeyValue
from tfk_transformer.layers.decoder import Decoded
from tfk_transformer.layers.masks import causal_mask
from tfk_transformer.models.base import Step, Stepper, TokenModel


@keras.saving.register_keras_serializable(package="tfk_transformer")
class LanguageModel(TokenModel):
    """A causal Transformer decoder without an encoder.

    Called on ids (B, T), padded with 0 at the end, it returns the logits (B, T, vocab_size) of the token after each
    position, in the compute dtype; with `output="probabilities"` their softmax, float32.

    Args:
        config: sizes and options.
        **kwargs: of `keras.Model`, for instance `dtype="mixed_bfloat16"`.
    """

    config_type = LanguageModelConfig

    def __init__(self, config: LanguageModelConfig, **kwargs):
        super().__init__(config, **kwargs)
        self._add_decoder(config.vocab_size, cross_attention=False)

    def build(self, input_shape=None):
        """Make all weights; their shapes come from the configuration alone."""
        self._build_all((self.target_embedding,), (self.target_positions, self.decoder, self.projection))

    def decode(self, inputs, training=None) -> Decoded:
        """Return the decoder's output (B, T, D) and its attention weights (B, H, T, T), for ids (B, T)."""
        mask = causal_mask(ops.shape(inputs)[1])
        return self.decoder(self._embed(inputs, training), attention_mask=mask, training=training)

    def step(self, tokens, position, cache: list[KeyValue], memory=(), lineage=None) -> Step:
        """Decode one position more for M beams a sentence; see `Transformer.step`."""
        embedded = self.target_positions.at(self.target_embedding(tokens), position)
        output, cache, _ = self.decoder.step(embedded, cache, self.decoder.project_memory(None), lineage)
        return self._to_step(output, cache, None)

    def start_search(self, source, use_cache=True) -> Stepper:
        """Return the steps of a search; the source is a prefix that the search itself feeds in, see `beam_search`."""
        if use_cache:
            return Stepper(self._cached_step, self.decoder.empty_cache, ())

        def step(beams, cache, memory):
            return self._step_by_full_pass(beams.ids, lambda ids, _: self.decode(ids))

        return Stepper(step, lambda batch: [], ())
