"""Base classes of the models: Keras models with a configuration, named weights and search steps."""

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import (
    LanguageModelConfig,
    ModelOptions,
    TransformerConfig,
)
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.words import nearest
from tfk_transformer.keras_internals import has_loss_weights
from tfk_transformer.layers.attention import KeyValue
from tfk_transformer.layers.decoder import Decoded, Decoder
from tfk_transformer.layers.position_encoding import Positions
from tfk_transformer.layers.vocabulary_projection import VocabularyProjection
from tfk_transformer.losses import (
    LabelSmoothedCrossentropy,
    projected_crossentropy,
    shared_by_devices,
)


class ConfiguredModel(keras.Model):
    """Base of the models that a configuration describes.

    All sizes are in the configuration, so `build()` needs no input shape, and `summary()` builds
    the model.

    Args:
        config: the configuration, of the class `config_type`.
        **kwargs: arguments of `keras.Model`, for instance `dtype="mixed_bfloat16"`.

    Raises:
        ValueError: if `config` is not of the class `config_type`.
    """

    config_type: type[ModelOptions]
    config: ModelOptions

    def __init__(self, config: ModelOptions, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_config(config, self.config_type)
        self.config = config

    def check_inputs(self, inputs: Tensor) -> None:
        """Check the names, shapes, types and known values of the inputs of a call.

        Args:
            inputs: the inputs that are passed to `call`.

        Raises:
            ValueError: names the argument, the expected and the received value.
        """
        raise NotImplementedError

    def __call__(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Check the inputs, then call the model; see `keras.Model`."""
        self.check_inputs(inputs)
        return super().__call__(inputs, *args, **kwargs)

    @functools.wraps(keras.Model.fit)
    def fit(self, x: Tensor = None, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Check arrays, then train; see `keras.Model`.

        Batches of a data set are checked when the step is traced.
        """
        self._check_arrays(x)
        return super().fit(x, *args, **kwargs)

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, x: Tensor = None, *args: Any, **kwargs: Any) -> Tensor:
        """Check arrays, then evaluate; see `keras.Model`."""
        self._check_arrays(x)
        return super().evaluate(x, *args, **kwargs)

    @functools.wraps(keras.Model.predict)
    def predict(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Check arrays, then predict; see `keras.Model`."""
        self._check_arrays(x)
        return super().predict(x, *args, **kwargs)

    def _check_arrays(self, x: Tensor) -> None:
        # Otherwise, a data set, a sequence or a generator.
        if isinstance(x, Mapping | list | tuple) or hasattr(x, "shape"):
            self.check_inputs(x)

    @functools.wraps(keras.Model.summary)
    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Build the model if needed, then print its layers and parameters; see `keras.Model`."""
        if not self.built:
            self.build()
        super().summary(*args, **kwargs)

    def _embedding(self, name: str, vocab_size: int, tied: bool = False) -> keras.layers.Embedding:
        # Embeddings have unit variance when positions are added. If tied, logits have unit variance
        # for normalized activations.
        scaled = self.config.scale_embeddings or tied
        stddev = self.config.model_dim**-0.5 if scaled else 1.0
        return keras.layers.Embedding(
            vocab_size,
            self.config.model_dim,
            keras.initializers.RandomNormal(stddev=stddev),
            dtype=self.dtype_policy,
            name=name,
        )

    def _positions(self, name: str, prefix: int = 0) -> Positions:
        c = self.config
        return Positions(
            c.positions,
            c.max_length,
            c.scale_embeddings,
            c.embedding_dropout_rate,
            offset=c.position_offset,
            prefix=prefix,
            norm=c.embedding_norm,
            epsilon=c.norm_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )

    @property
    def named_weights(self) -> dict[str, keras.Variable]:
        """The weights by name, a path below the model such as "encoder/layer_0/attention/query"."""
        return {weight.path.removeprefix(f"{self.path}/"): weight for weight in self.weights}

    @classmethod
    def from_weights(
        cls, mapping: Mapping[str, np.ndarray], config: ModelOptions, **kwargs: Any
    ) -> Self:
        """Make a model with given weights.

        Args:
            mapping: arrays by name. `named_weights` of a built model of this configuration has
                their names and shapes.
            config: the configuration.
            **kwargs: arguments of the model.

        Returns:
            A built model.

        Raises:
            ValueError: with every array that is missing, unexpected or of another shape.
        """
        model = cls(config, **kwargs)
        model.build()
        weights = model.named_weights
        expected = {name: tuple(weight.shape) for name, weight in weights.items()}
        actual = {name: np.shape(array) for name, array in mapping.items()}
        if problems := array_problems(expected, actual):
            raise ValueError(
                f"weights: expected the {len(weights)} arrays of this configuration, got {problems}"
            )
        for name, weight in weights.items():
            weight.assign(mapping[name])
        return model

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor, the configuration as a plain dictionary."""
        return {**super().get_config(), "config": self.config.model_dump(mode="json")}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, object] | None = None
    ) -> Self:
        """Make the model from the result of `get_config`."""
        arguments = {name: value for name, value in config.items() if name != "config"}
        return cls(cls.config_type(**config["config"]), **arguments)


def _check_config(config: object, config_type: type[ModelOptions]) -> None:
    if isinstance(config, config_type):
        return
    name = config_type.__name__
    preset = config if isinstance(config, str) and config in PRESETS else "tiny"
    sizes = ", ".join(
        f"{field}=..." for field, info in config_type.model_fields.items() if info.is_required()
    )
    value = repr(config) if isinstance(config, str) else f"a value of type {type(config).__name__}"
    raise ValueError(
        f'config: expected a {name}, got {value}; make one with {name}.preset("{preset}", {sizes}).'
    )


class Step(NamedTuple):
    """The result of a decoding step."""

    logits: Tensor  # (B, M, vocab_size); for an ensemble, a list of logits
    cache: Tensor  # the KV cache, longer by one position of M beams
    # float32 (B, M, S): to each source token, the mean of the last layer's heads. Without a source,
    # (B, M, 0).
    attention: Tensor


class Beams(NamedTuple):
    """The M hypotheses of each sentence that a decoding step extends."""

    ids: Tensor  # int32 (B, M, t+1), the start token first
    position: Tensor  # int32 (), t, the position of the last token
    # float32 (B, 1, M, (t+1)*M), additive: hides the cached positions that a beam does not descend
    # from.
    lineage: Tensor


class Stepper(NamedTuple):
    """The functions and tensors of a model for a search of encoded sources."""

    step: Callable[[Beams, Tensor, Tensor], Step]  # of beams, cache and memory
    # B -> the KV cache before the first step: tensors (B, …, 0, …) that grow along axis 2.
    first_cache: Callable[[Tensor], Tensor]
    memory: Tensor  # a structure of tensors (B, …); a step may be called with only some of the rows


def restrict_logits(stepper: Stepper, tokens: Tensor = None) -> Stepper:
    """Return a stepper whose logits (B, M, n) are of the tokens (n,); None for all tokens."""
    if tokens is None:
        return stepper

    def step(beams: Beams, cache: Tensor, memory: Tensor) -> Step:
        result = stepper.step(beams, cache, memory)
        return result._replace(logits=ops.take(result.logits, tokens, axis=2))

    return stepper._replace(step=step)


class TokenModel(ConfiguredModel):
    """Base of the models that predict tokens.

    They have an embedding, positions, a decoder, and a projection to the vocabulary.
    """

    config: TransformerConfig | LanguageModelConfig

    def named_members(self) -> dict[str, "TokenModel"]:
        """Return the members of an ensemble, or this model, by their prefix in `named_weights`."""
        return {"": self}

    def _add_decoder(
        self,
        vocab_size: int,
        cross_attention: bool,
        tied: bool,
        embedding: keras.layers.Embedding | None = None,
    ) -> None:
        c = self.config
        dtype = {"dtype": self.dtype_policy}
        self.target_embedding = embedding or self._embedding("target_embedding", vocab_size, tied)
        self.target_positions = self._positions("target_positions", len(c.target_prefix))
        self.decoder = Decoder(
            c.decoder_options(),
            c.decoder_layers,
            c.decoder_final_norm,
            cross_attention,
            **dtype,
            name="decoder",
        )
        self.projection = VocabularyProjection(
            vocab_size, tied, c.output_bias, **dtype, name="output"
        )

    def _build_all(
        self, embeddings: Iterable[keras.layers.Embedding], layers: Iterable[keras.layers.Layer]
    ) -> None:
        """Make all weights. Their shapes follow from the configuration."""
        for embedding in {id(e): e for e in embeddings}.values():
            embedding.build((None, None))
        for layer in layers:
            layer.build((None, None, self.config.model_dim))

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Return logits in the compute dtype, or float32 probabilities, (B, T, vocab_size)."""
        output = self.decode(inputs, training).output
        logits = self.logits(output)
        if self.config.output != "logits":
            return ops.softmax(ops.cast(logits, "float32"), axis=-1)
        if training and keras.backend.backend() == "tensorflow":
            # `compute_loss` reads this attribute of TensorFlow's tensor.
            logits.projected_from = output
        return logits

    @property
    def _joins_loss(self) -> bool:
        """Whether the loss and the projection can be computed together."""
        loss = getattr(self, "loss", None)
        return (
            not self.projection.use_bias
            and type(loss) is LabelSmoothedCrossentropy
            and not loss.consistency
        )

    def compute_loss(
        self,
        x: Tensor = None,
        y: Tensor = None,
        y_pred: Tensor = None,
        sample_weight: Tensor = None,
        training: bool = True,
    ) -> Tensor:
        """Compute the loss of a batch; see `keras.Model`.

        If `y_pred` are logits that a model returned while training, `LabelSmoothedCrossentropy` is
        joined with the projection to the vocabulary, see `projected_crossentropy`. These logits
        carry the decoder output that they were projected from. The loss and its gradients are the
        same either way.
        """
        output = getattr(y_pred, "projected_from", None)
        joins_loss = (
            output is not None
            and self._joins_loss
            and sample_weight is None
            and not shared_by_devices()
        )
        if not joins_loss or self.losses or has_loss_weights(self):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        table = (
            self.target_embedding.embeddings
            if self.projection.tied
            else ops.transpose(self.projection.kernel)
        )
        return self.loss.mean(
            projected_crossentropy(y, y_pred, output, table, self.loss.label_smoothing), y
        )

    def decode(self, inputs: Tensor, training: bool | None = None) -> Decoded:
        """Return the decoder's output (B, T, D) and attention weights, for the inputs of a call."""
        raise NotImplementedError

    def step(
        self,
        tokens: Tensor,
        position: Tensor,
        cache: list[KeyValue],
        memory: Tensor = (),
        lineage: Tensor = None,
    ) -> Step:
        """Decode the next position for M beams of each sentence; see `Transformer.step`."""
        raise NotImplementedError

    def start_search(
        self, source: Tensor, use_cache: bool = True, tokens: Tensor = None
    ) -> Stepper:
        """Encode source ids (B, S) for a search; see `Transformer.start_search`."""
        raise NotImplementedError

    def logits(self, decoded: Tensor) -> Tensor:
        """Project decoder outputs (B, T, D) to logits (B, T, vocab_size)."""
        return self.projection(
            decoded, self.target_embedding.embeddings if self.projection.tied else None
        )

    def _embed(self, target: Tensor, training: bool | None = None) -> Tensor:
        return self.target_positions(self.target_embedding(target), training=training)

    def _step_by_full_pass(self, ids: Tensor, decode: Callable[[Tensor, Tensor], Decoded]) -> Step:
        """Run a decoding step without a cache, as a full pass over ids (B, M, t+1)."""
        batch, beams, length = ops.shape(ids)
        sentences = ops.arange(batch * beams) // beams  # (B*M,)
        decoded = decode(ops.reshape(ids, (batch * beams, length)), sentences)
        last = ops.reshape(decoded.output[:, -1], (batch, beams, self.config.model_dim))
        cross = decoded.cross_weights[-1]
        attention = (
            None
            if cross is None
            else ops.reshape(ops.mean(cross, axis=1)[:, -1], (batch, beams, ops.shape(cross)[-1]))
        )
        return self._to_step(last, [], attention)

    def _cached_step(self, beams: Beams, cache: list[KeyValue], memory: Tensor) -> Step:
        return self.step(beams.ids[:, :, -1], beams.position, cache, memory, beams.lineage)

    def _to_step(self, output: Tensor, cache: list[KeyValue], attention: Tensor) -> Step:
        if attention is None:
            attention = ops.zeros((*ops.shape(output)[:2], 0), dtype="float32")
        return Step(self.logits(output), cache, attention)


def mean_of(tensors: Sequence[Tensor]) -> Tensor:
    """Return the mean of tensors of one shape."""
    return (
        tensors[0] if len(tensors) == 1 else functools.reduce(operator.add, tensors) / len(tensors)
    )


def mean_log_probs(logits: Tensor) -> Tensor:
    """Return the log-probabilities of logits (…, vocab_size), float32; for a list, their mean."""
    return mean_of(
        [ops.log_softmax(ops.cast(part, "float32"), axis=-1) for part in keras.tree.flatten(logits)]
    )


def array_problems(
    expected: Mapping[str, tuple[int, ...]],
    actual: Mapping[str, tuple[int, ...]],
    most: int | None = None,
) -> str:
    """Describe every array that is missing, unexpected or of another shape; "" without problems.

    Args:
        expected: the shapes of the weights by name.
        actual: the shapes of the arrays by name.
        most: the maximum number of described arrays; the others are counted. Defaults to None: all.
    """
    problems = list(_differences(expected, actual))
    described = problems[:most]
    if len(described) < len(problems):
        described.append(f"and {len(problems) - len(described):,} more")
    return "; ".join(described)


def _differences(
    expected: Mapping[str, tuple[int, ...]], actual: Mapping[str, tuple[int, ...]]
) -> Iterator[str]:
    for name, shape in expected.items():
        if name not in actual:
            yield f"no '{name}' {shape}"
        elif actual[name] != shape:
            yield f"'{name}' of shape {actual[name]} for {shape}"
    for name in actual:
        if name not in expected:
            yield f"an unexpected '{name}' {actual[name]}.{nearest(name, expected)}"
