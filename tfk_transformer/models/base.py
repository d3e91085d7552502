"""Base classes of the models: a Keras model made from a configuration, with named weights, and the
steps of a search.
"""

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
        """Check names, shapes and types of the inputs of a call, and their values where they are
        known.

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
        """Check arrays, then train; see `keras.Model`. Batches of a data set are checked when the
        step is traced.
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
        # Else a data set, a sequence or a generator.
        if isinstance(x, Mapping | list | tuple) or hasattr(x, "shape"):
            self.check_inputs(x)

    @functools.wraps(keras.Model.summary)
    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Build the model if it is not built, then print its layers and numbers of parameters; see
        `keras.Model`.
        """
        if not self.built:
            self.build()
        super().summary(*args, **kwargs)

    def _embedding(self, name: str, vocab_size: int, tied: bool = False) -> keras.layers.Embedding:
        # Gives unit variance where positions are added and, if tied, logits of unit variance for
        # normalized activations.
        small = self.config.scale_embeddings or tied
        scale = keras.initializers.RandomNormal(
            stddev=self.config.model_dim**-0.5 if small else 1.0
        )
        return keras.layers.Embedding(
            vocab_size, self.config.model_dim, scale, dtype=self.dtype_policy, name=name
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
        """The weights by name. A name is a path below the model, such as
        "encoder/layer_0/attention/query".
        """
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
        wanted = model.named_weights
        given = {name: np.shape(array) for name, array in mapping.items()}
        if problems := array_problems(
            {name: tuple(weight.shape) for name, weight in wanted.items()}, given
        ):
            raise ValueError(
                f"weights: expected the {len(wanted)} arrays of this configuration, got {problems}"
            )
        for name, weight in wanted.items():
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
        others = {name: value for name, value in config.items() if name != "config"}
        return cls(cls.config_type(**config["config"]), **others)


def _check_config(config: object, wanted: type[ModelOptions]) -> None:
    if isinstance(config, wanted):
        return
    name, preset = (
        wanted.__name__,
        config if isinstance(config, str) and config in PRESETS else "tiny",
    )
    sizes = ", ".join(
        f"{field}=..." for field, info in wanted.model_fields.items() if info.is_required()
    )
    came = repr(config) if isinstance(config, str) else f"a value of type {type(config).__name__}"
    raise ValueError(
        f'config: expected a {name}, got {came}; make one with {name}.preset("{preset}", {sizes}).'
    )


class Step(NamedTuple):
    """The result of a decoding step."""

    logits: Tensor  # (B, M, vocab_size); of an ensemble, a list of them
    cache: Tensor  # the KV cache, longer by one position of M beams
    # float32 (B, M, S): to each source token, the mean over the last layer's heads; (B, M, 0)
    # without a source.
    attention: Tensor


class Beams(NamedTuple):
    """The M hypotheses of each sentence that a decoding step extends."""

    ids: Tensor  # int32 (B, M, t+1), the start token first
    position: Tensor  # int32 (), t, the position of the last token
    # float32 (B, 1, M, (t+1)*M), additive: hides the cached positions of beams that a beam does not
    # descend from.
    lineage: Tensor


class Stepper(NamedTuple):
    """The functions and tensors of a model that a search needs, once the sources are encoded."""

    step: Callable[[Beams, Tensor, Tensor], Step]  # of beams, cache and memory
    # B -> the KV cache before the first step: tensors (B, …, 0, …) that grow along axis 2.
    first_cache: Callable[[Tensor], Tensor]
    memory: Tensor  # a structure of tensors (B, …); a step may be called with only some of the rows


def among(stepper: Stepper, tokens: Tensor = None) -> Stepper:
    """Return steps whose logits (B, M, n) are those of some tokens (n,). None: of the whole
    vocabulary.
    """
    if tokens is None:
        return stepper

    def step(beams: Beams, cache: Tensor, memory: Tensor) -> Step:
        found = stepper.step(beams, cache, memory)
        return found._replace(logits=ops.take(found.logits, tokens, axis=2))

    return stepper._replace(step=step)


class TokenModel(ConfiguredModel):
    """Base of the models that predict tokens: an embedding, positions, a decoder, and a projection
    to the vocabulary.
    """

    config: TransformerConfig | LanguageModelConfig

    def named_members(self) -> dict[str, "TokenModel"]:
        """Return the models that predict together, by the prefix of their names in `named_weights`:
        this one, or those of an ensemble.
        """
        return {"": self}

    def _add_decoder(
        self,
        vocab_size: int,
        cross_attention: bool,
        tied: bool,
        embedding: keras.layers.Embedding | None = None,
    ) -> None:
        c, dtype = self.config, {"dtype": self.dtype_policy}
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
            # `compute_loss` needs it; a tensor of TensorFlow takes attributes.
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
        joined with the projection to the vocabulary, see `projected_crossentropy`. Such logits
        carry the decoder output that they were projected from. The loss and its gradients are the
        same either way.
        """
        output = getattr(y_pred, "projected_from", None)
        joined = (
            output is not None
            and self._joins_loss
            and sample_weight is None
            and not shared_by_devices()
        )
        if not joined or self.losses or has_loss_weights(self):
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
        """Return the decoder's output (B, T, D) and its attention weights, for the inputs of a
        call.
        """
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
        """Take a decoding step without a cache, as a full pass over all tokens so far, ids (B, M,
        t+1).
        """
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
    """Return the log-probabilities of logits (…, vocab_size), float32; of a list of logits, the
    mean of their log-probabilities.
    """
    return mean_of(
        [ops.log_softmax(ops.cast(part, "float32"), axis=-1) for part in keras.tree.flatten(logits)]
    )


def array_problems(
    wanted: Mapping[str, tuple[int, ...]],
    given: Mapping[str, tuple[int, ...]],
    most: int | None = None,
) -> str:
    """Describe every array that is missing, has another shape than wanted, or is not wanted; "" if
    all are right.

    Args:
        wanted: the shapes of the weights by name.
        given: the shapes of the arrays by name.
        most: how many are named; the number of the others follows. None: all.
    """
    problems = list(_differences(wanted, given))
    more = (
        [f"and {len(problems) - most:,} more"] if most is not None and len(problems) > most else []
    )
    return "; ".join([*problems[:most], *more])


def _differences(
    wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]
) -> Iterator[str]:
    for name, shape in wanted.items():
        if name not in given:
            yield f"no '{name}' {shape}"
        elif given[name] != shape:
            yield f"'{name}' of shape {given[name]} for {shape}"
    for name in given:
        if name not in wanted:
            yield f"an unexpected '{name}' {given[name]}.{nearest(name, wanted)}"
