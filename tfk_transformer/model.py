"""What every model here is: a Keras model made from a configuration record, with weights that have names."""

from collections.abc import Mapping
from typing import Self

import keras
import numpy as np

from tfk_transformer.config import ModelOptions
from tfk_transformer.positions import Positions
from tfk_transformer.records import nearest


class ConfiguredModel(keras.Model):
    """Base of the models that a configuration record describes.

    Args:
        config: of the class in `config_type`.
        **kwargs: of `keras.Model`, for instance `dtype="mixed_bfloat16"`.
    """

    config_type: type[ModelOptions]

    def __init__(self, config: ModelOptions, **kwargs):
        super().__init__(**kwargs)
        self.config = config

    def _embedding(self, name, vocab_size, tied=False):
        # Unit variance where it meets the positions; and, where tied, logits of unit variance from normalised activations.
        small = self.config.scale_embeddings or tied
        scale = keras.initializers.RandomNormal(stddev=self.config.model_dim**-0.5 if small else 1.0)
        return keras.layers.Embedding(vocab_size, self.config.model_dim, scale, dtype=self.dtype_policy, name=name)

    def _positions(self, name):
        c = self.config
        return Positions(c.positions, c.max_length, c.scale_embeddings, c.embedding_dropout_rate, dtype=self.dtype_policy, name=name)

    @property
    def named_weights(self) -> dict:
        """Every weight by name: its path below the model, such as "encoder/layer_0/attention/query"."""
        return {weight.path.partition("/")[2]: weight for weight in self.weights}

    @classmethod
    def from_weights(cls, mapping: Mapping[str, np.ndarray], config, **kwargs) -> Self:
        """Make a model of given weights.

        Args:
            mapping: arrays by name; `named_weights` of a built model of this configuration has the names and shapes.
            config: what the arrays alone do not tell.
            **kwargs: of the model.

        Raises:
            ValueError: naming every array that is missing, unexpected or of another shape.
        """
        model = cls(config, **kwargs)
        model.build()
        wanted = model.named_weights
        if problems := list(_differences({name: tuple(weight.shape) for name, weight in wanted.items()}, mapping)):
            raise ValueError(f"weights: expected the {len(wanted)} arrays of this configuration, got {'; '.join(problems)}")
        for name, weight in wanted.items():
            weight.assign(mapping[name])
        return model

    def get_config(self):
        """Return what the constructor needs to make the same model again."""
        return {**super().get_config(), "config": self.config.model_dump(mode="json")}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Make the model from what `get_config` returned."""
        return cls(**{**config, "config": cls.config_type(**config["config"])})


def _differences(shapes: Mapping[str, tuple], mapping: Mapping[str, np.ndarray]):
    """Yield every way in which a mapping of arrays is not what `shapes` asks for."""
    for name, shape in shapes.items():
        if name not in mapping:
            yield f"no '{name}' {shape}"
        elif np.shape(mapping[name]) != shape:
            yield f"'{name}' of shape {np.shape(mapping[name])} for {shape}"
    for name in mapping:
        if name not in shapes:
            yield f"an unexpected '{name}' {np.shape(mapping[name])}.{nearest(name, shapes)}"
