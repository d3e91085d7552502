"""A decoder-only model, which continues a sequence."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import LanguageModelConfig
from tfk_transformer.layers.decoder import Decoded
from tfk_transformer.layers.masks import causal_mask
from tfk_transformer.models.checked_batches import LABELS_NAME, IdRange
from tfk_transformer.models.checked_model import check_ids
from tfk_transformer.models.token_model import Step, Stepper, TokenModel


@keras.saving.register_keras_serializable(package="tfk_transformer")
class LanguageModel(TokenModel):
    """A causal Transformer decoder without an encoder.

    Called with ids (B, T), padded with 0 at the end, it returns the logits (B, T, vocab_size) of
    the token that follows each position, in the compute dtype. With `output="probabilities"` it
    returns their softmax in float32.

    A call, `fit`, `evaluate` and `predict` check rank and type of the ids, and that all ids are
    within the vocabulary. `fit` and `evaluate` also check the labels of a loss that reads ids.

    A subclass can replace the class of its stack, `decoder_type`.

    Args:
        config: sizes and options.
        **kwargs: arguments of `keras.Model`, for instance `dtype="mixed_bfloat16"`.

    Raises:
        ValueError: if `config` is not a `LanguageModelConfig`.
    """

    config_type = LanguageModelConfig
    config: LanguageModelConfig

    def __init__(self, config: LanguageModelConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self._add_decoder(cross_attention=False)

    def check_inputs(self, inputs: Tensor) -> None:
        """Check the inputs of a call; see `CheckedModel.check_inputs`."""
        check_ids("inputs", inputs, self.config.vocab_size)

    @property
    def id_ranges(self) -> tuple[IdRange, ...]:
        """The ids that the input, and the labels, may contain."""
        return (
            IdRange("inputs", self.config.vocab_size),
            IdRange(LABELS_NAME, self.config.vocab_size),
        )

    def decode(self, inputs: Tensor, training: bool | None = None) -> Decoded:
        """Return the decoder's output (B, T, D) and attention (B, H, T, T), for ids (B, T)."""
        mask = causal_mask(ops.shape(inputs)[1])
        return self.decoder(self._embed(inputs, training), attention_mask=mask, training=training)

    def step(
        self,
        tokens: Tensor,
        position: Tensor,
        cache: list[Tensor],
        memory: Tensor = (),
        lineage: Tensor = None,
    ) -> Step:
        """Decode the next position for M beams of each sentence; see `Transformer.step`."""
        embedded = self.target_positions.at(self.target_embedding(tokens), position)
        positions = self._step_positions(position, tokens, ops.shape(tokens)[1], cache)
        memory = self.decoder.project_memory(None)
        output, cache, _ = self.decoder.step(embedded, cache, memory, lineage, None, positions)
        return self._to_step(output, cache, None)

    def start_search(
        self, source: Tensor, use_cache: bool = True, tokens: Tensor = None
    ) -> Stepper:
        """Return the stepper of a search.

        The source is a prompt, which the search passes as a prefix; see `beam_search`.
        """
        return self._stepper((), use_cache, tokens)

    def _decode_target(self, target: Tensor, memory: Sequence[Tensor]) -> Decoded:
        return self.decode(target)
