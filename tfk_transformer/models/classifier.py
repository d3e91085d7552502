"""An encoder with a classification head."""

import keras
from keras import ops

from tfk_transformer.config.model_options import ClassifierConfig
from tfk_transformer.constants import PAD_ID
from tfk_transformer.layers.encoder import Encoded, Encoder
from tfk_transformer.layers.masks import additive_mask
from tfk_transformer.models.base import ConfiguredModel, check_inputs


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Classifier(ConfiguredModel):
    """A Transformer encoder whose outputs are averaged over the real tokens and projected to the classes.

    Called on ids (B, S), padded with 0, or on {"source": ids, "source_mask": (B, S) with 1 for real tokens}, it returns
    logits (B, num_classes) in the compute dtype.

    Args:
        config: sizes and options.
        **kwargs: of `keras.Model`, for instance `dtype="mixed_bfloat16"`.
    """

    config_type = ClassifierConfig

    def __init__(self, config: ClassifierConfig, **kwargs):
        super().__init__(config, **kwargs)
        dtype = {"dtype": self.dtype_policy}
        self.source_embedding = self._embedding("source_embedding", config.vocab_size)
        self.source_positions = self._positions("source_positions")
        self.encoder = Encoder(config, config.encoder_layers, config.encoder_final_norm, **dtype, name="encoder")
        self.head = keras.layers.Dense(config.num_classes, **dtype, name="head")

    def build(self, input_shape=None):
        """Make all weights; their shapes come from the configuration alone."""
        self.source_embedding.build((None, None))
        for layer in (self.source_positions, self.encoder):
            layer.build((None, None, self.config.model_dim))
        self.head.build((None, self.config.model_dim))

    def call(self, inputs, training=None):
        """Return logits (B, num_classes)."""
        source, real = _source_and_mask(inputs)
        encoded = self._encode(source, real, training).output
        return self.head(_mean_of_real(encoded, real))

    def attention_maps(self, inputs) -> list:
        """Return the attention weights of every layer, float32 (B, H, S, S), for the same inputs as a call."""
        return self._encode(*_source_and_mask(inputs), training=False).weights

    def _encode(self, source, real, training) -> Encoded:
        embedded = self.source_positions(self.source_embedding(source), training=training)
        return self.encoder(embedded, attention_mask=additive_mask(real), training=training)


def _source_and_mask(inputs):
    """Return ids (B, S) and float32 (B, S), 1 for real tokens."""
    if not isinstance(inputs, dict):
        inputs = {"source": inputs}
    check_inputs(inputs, ("source",), ("source_mask",))
    real = inputs.get("source_mask", ops.not_equal(inputs["source"], PAD_ID))
    return inputs["source"], ops.cast(real, "float32")


def _mean_of_real(encoded, real):
    """Average (B, S, D) over the real tokens of each row: (B, D); padding has no say, and a row of it gives 0."""
    weights = real / ops.maximum(ops.sum(real, axis=1, keepdims=True), 1.0)  # (B, S)
    return ops.sum(encoded * ops.cast(weights, encoded.dtype)[:, :, None], axis=1)
