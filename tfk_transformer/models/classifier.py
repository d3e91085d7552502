"""An encoder with a classification head."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import ClassifierConfig
from tfk_transformer.constants import PAD_ID
from tfk_transformer.layers.attention import Attended
from tfk_transformer.layers.masks import additive_mask
from tfk_transformer.models.checked_batches import LABELS_NAME, IdRange
from tfk_transformer.models.configured_model import ConfiguredModel


# The name of files that exist.
@keras.saving.register_keras_serializable(package="tfk_transformer", name="Classifier")
class EncoderClassifier(ConfiguredModel):
    """A Transformer encoder whose mean output over the real tokens is projected to the classes.

    Called with ids (B, S), padded with 0, it returns logits (B, num_classes) in the compute dtype.
    It can also be called with {"source": ids, "source_mask": (B, S), 1 for a token and 0 for
    padding}.

    A call, `fit`, `evaluate` and `predict` check names, rank and type of their inputs, and that all
    ids are within the vocabulary. `fit` and `evaluate` also check the classes of a sparse loss.

    A subclass can replace the class of its stack, `encoder_type`.

    Args:
        config: sizes and options.
        **kwargs: arguments of `keras.Model`, for instance `dtype="mixed_bfloat16"`.

    Raises:
        ValueError: if `config` is not a `ClassifierConfig`.
    """

    config_type = ClassifierConfig
    config: ClassifierConfig

    def __init__(self, config: ClassifierConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self._add_encoder(config.vocab_size)
        self.head = keras.layers.Dense(config.num_classes, dtype=self.dtype_policy, name="head")

    def build(self, input_shape: object = None) -> None:
        """Make all weights. Their shapes follow from the configuration."""
        super().build(input_shape)
        self.head.build((None, self.config.model_dim))

    @property
    def id_ranges(self) -> tuple[IdRange, ...]:
        """The ids that the input may contain, and the classes that the labels may contain."""
        return (
            IdRange("source", self.config.vocab_size),
            IdRange(LABELS_NAME, self.config.num_classes, classes=True),
        )

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Return logits (B, num_classes)."""
        source, real = _source_and_mask(inputs)
        encoded = self._encode(source, real, training).output
        # The mean over the real tokens of each row; 0 for a row of padding.
        weights = real / ops.maximum(ops.sum(real, axis=1, keepdims=True), 1.0)  # (B, S)
        # Not [:, :, None], which LiteRT could run only with an operator of TensorFlow.
        weights = ops.expand_dims(ops.cast(weights, encoded.dtype), axis=-1)
        return self.head(ops.sum(encoded * weights, axis=1))

    def _output_spec(self, inputs: Tensor) -> keras.KerasTensor:
        ids = inputs["source"] if isinstance(inputs, Mapping) else inputs
        return keras.KerasTensor((ids.shape[0], self.config.num_classes), self.compute_dtype)

    def attention_maps(self, inputs: Tensor) -> list[Tensor]:
        """Return each layer's attention weights, float32 (B, H, S, S), for the inputs of a call."""
        self.check_inputs(inputs)
        return self._encode(*_source_and_mask(inputs), False).weights

    def _encode(self, source: Tensor, real: Tensor, training: bool | None) -> Attended:
        embedded = self.source_positions(self.source_embedding(source), training=training)
        return self.encoder(embedded, attention_mask=additive_mask(real), training=training)


def _source_and_mask(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return ids (B, S) and float32 (B, S), 1 for a token and 0 for padding."""
    if not isinstance(inputs, dict):
        inputs = {"source": inputs}
    real = inputs.get("source_mask", ops.not_equal(inputs["source"], PAD_ID))
    return inputs["source"], ops.cast(real, "float32")
