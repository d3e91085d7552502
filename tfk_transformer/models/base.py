"""What the models have in common: a Keras model made from a configuration record, with weights that have names."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from tfk_transformer.config.model_options import ModelOptions
from tfk_transformer.config.record import nearest
from tfk_transformer.layers.decoder import Decoder
from tfk_transformer.layers.position_encoding import Positions
from tfk_transformer.layers.vocabulary_projection import VocabularyProjection
from tfk_transformer.losses import LabelSmoothedCrossentropy, projected_crossentropy, shared_by_devices


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


def check_inputs(inputs: Mapping, needed: tuple, optional: tuple = ()):
    """Refuse inputs without what is needed, and those that would be overlooked, such as a mask under another name."""
    known = (*needed, *optional)
    for name in inputs:
        if name not in known:
            raise ValueError(f"inputs: expected {', '.join(known)}, got '{name}'.{nearest(name, known)}")
    if missing := [name for name in needed if name not in inputs]:
        raise ValueError(f"inputs: expected {', '.join(needed)}, got none named {', '.join(missing)}.")


class Step(NamedTuple):
    """What a step of a search gives."""

    logits: Any  # (B, M, vocab_size)
    cache: Any  # grown by a position of M beams
    attention: Any  # float32 (B, M, S): to each source token, the mean over the last layer's heads; (B, M, 0) without a source


class Beams(NamedTuple):
    """The M hypotheses a sentence that a step extends."""

    ids: Any  # int32 (B, M, t+1), the start token first
    lineage: Any  # float32 (B, 1, M, (t+1)*M), additive: hides from each the cached positions of those it does not descend from


class Stepper(NamedTuple):
    """What a search needs of a model, once it has read its sources."""

    step: Callable  # (Beams, cache, memory) -> Step
    first_cache: Callable  # B -> the cache before the first step: tensors (B, …, 0, …) that grow along axis 2
    memory: Any  # a structure of tensors (B, …); a step may be asked about some of their rows


class TokenModel(ConfiguredModel):
    """Base of the models that predict tokens: an embedding, positions, a decoder, and a projection to the vocabulary."""

    def __init__(self, config: ModelOptions, **kwargs):
        super().__init__(config, **kwargs)
        self._latest = SimpleNamespace(output=None, logits=None)  # of the decoder and of the projection, in training

    def _add_decoder(self, vocab_size, cross_attention, embedding=None):
        c, dtype = self.config, {"dtype": self.dtype_policy}
        tied = c.tie_embeddings != "none"
        self.target_embedding = embedding or self._embedding("target_embedding", vocab_size, tied)
        self.target_positions = self._positions("target_positions")
        self.decoder = Decoder(c.decoder_options(), c.decoder_layers, c.decoder_final_norm, cross_attention, **dtype, name="decoder")
        self.projection = VocabularyProjection(vocab_size, tied, c.output_bias, **dtype, name="output")

    def _build_all(self, embeddings, layers):
        """Make all weights; their shapes come from the configuration alone."""
        for embedding in {id(e): e for e in embeddings}.values():
            embedding.build((None, None))
        for layer in layers:
            layer.build((None, None, self.config.model_dim))

    def call(self, inputs, training=None):
        """Return logits or probabilities (B, T, vocab_size)."""
        output = self.decode(inputs, training).output
        logits = self.logits(output)
        if self.config.output == "logits":
            self._latest.output, self._latest.logits = (output, logits) if training and self._joins_loss else (None, None)
            return logits
        return ops.softmax(ops.cast(logits, "float32"), axis=-1)

    @property
    def _joins_loss(self):
        """Whether loss and projection can be computed together."""
        if self.projection.use_bias or keras.backend.backend() != "tensorflow":
            return False
        loss = getattr(self, "loss", None)
        return type(loss) is LabelSmoothedCrossentropy and not loss.consistency

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Compute the loss of a batch; see `keras.Model`.

        In `fit`, where predictions are the logits that this model has just returned, `LabelSmoothedCrossentropy` is joined with
        the projection to the vocabulary, see `projected_crossentropy`; the loss is the same.
        """
        latest, self._latest = self._latest, SimpleNamespace(output=None, logits=None)
        joined = y_pred is not None and y_pred is latest.logits and sample_weight is None and not shared_by_devices()
        if not joined or self.losses or self._compile_loss._user_loss_weights:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        table = self.target_embedding.embeddings if self.projection.tied else ops.transpose(self.projection.kernel)
        return self.loss.mean(projected_crossentropy(y, y_pred, latest.output, table, self.loss.label_smoothing), y)

    def logits(self, decoded):
        """Project decoder outputs (B, T, D) to logits (B, T, vocab_size)."""
        return self.projection(decoded, self.target_embedding.embeddings if self.projection.tied else None)

    def _embed(self, target, training=None):
        return self.target_positions(self.target_embedding(target), training=training)

    def _step_by_full_pass(self, ids, decode) -> Step:
        """Take a step by a full pass over all tokens so far, ids (B, M, t+1); there is no cache."""
        batch, beams, length = ops.shape(ids)
        sentences = ops.arange(batch * beams) // beams  # (B*M,)
        decoded = decode(ops.reshape(ids, (batch * beams, length)), sentences)
        last = ops.reshape(decoded.output[:, -1], (batch, beams, self.config.model_dim))
        cross = decoded.cross_weights[-1]
        attention = None if cross is None else ops.reshape(ops.mean(cross, axis=1)[:, -1], (batch, beams, ops.shape(cross)[-1]))
        return self._to_step(last, [], attention)

    def _cached_step(self, beams: Beams, cache, memory) -> Step:
        return self.step(beams.ids[:, :, -1], ops.shape(beams.ids)[2] - 1, cache, memory, beams.lineage)

    def _to_step(self, output, cache, attention) -> Step:
        if attention is None:
            attention = ops.zeros((*ops.shape(output)[:2], 0), dtype="float32")
        return Step(self.logits(output), cache, attention)


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
