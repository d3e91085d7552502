"""Models that predict tokens: how they decode, how a search steps, and how they are trained."""

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.layers.decoder import Decoded, Decoder
from tfk_transformer.layers.positions import key_positions
from tfk_transformer.layers.vocabulary_projection import Embedding, VocabularyProjection
from tfk_transformer.losses import token_weights
from tfk_transformer.models.configured_model import ConfiguredModel


class Step(NamedTuple):
    """The result of a decoding step."""

    logits: Tensor  # (B, M, vocab_size); for an ensemble, a list of logits
    # The KV cache, longer by one position of M beams; or the states of the M beams of SSRUs.
    cache: Tensor
    # float32 (B, M, S): to each source token, the mean of the last layer's heads. Without a source,
    # (B, M, 0).
    attention: Tensor


class Beams(NamedTuple):
    """The M hypotheses of each sentence that a decoding step extends."""

    ids: Tensor  # int32 (B, M, t+1), the start token first
    last: Tensor  # int32 (B, M), the last of these
    position: Tensor  # int32 (), t, the position of the last token
    # float32 (B, 1, M, (t+1)*M), additive: hides the cached positions that a beam does not descend
    # from. None is correct for M = 1.
    lineage: Tensor


StepFunction: TypeAlias = Callable[[Beams, Tensor, Tensor], Step]  # of beams, cache and memory


class Stepper(NamedTuple):
    """The functions and tensors of a model for a search of encoded sources."""

    step: StepFunction
    # B -> the KV cache before the first step: tensors (B, …, 0, …) that grow along axis 2.
    first_cache: Callable[[Tensor], Tensor]
    memory: Tensor  # a structure of tensors (B, …); a step may be called with only some of the rows


class TokenModel(ConfiguredModel):
    """Base of the models that predict tokens.

    They have an embedding, positions, a decoder, and a projection to the vocabulary.
    """

    config: TransformerConfig | LanguageModelConfig
    decoder_type = Decoder
    _token_weights: np.ndarray | None = None  # (vocab_size,), during `fit` with `class_weight`

    def named_members(self) -> dict[str, "TokenModel"]:
        """Return the members of an ensemble, or this model, by their prefix in `named_weights`."""
        return {"": self}

    def _add_decoder(self, cross_attention: bool, embedding: Embedding | None = None) -> None:
        """Make the layers that read and predict a target, with their own embedding by default."""
        c = self.config
        dtype = {"dtype": self.dtype_policy}
        self.target_embedding = embedding or self._embedding(
            "target_embedding", c.target_vocab_size, c.ties_output
        )
        self.target_positions = self._positions("target_positions", len(c.target_prefix))
        self.decoder = self.decoder_type(
            c.decoder_options(),
            c.decoder_layers,
            c.decoder_final_norm,
            cross_attention,
            c.max_length if c.has_ssru else None,
            None if c.has_ssru else c.relative_positions,
            **dtype,
            name="decoder",
        )
        self.projection = VocabularyProjection(
            c.target_vocab_size, c.ties_output, c.output_bias, **dtype, name="output"
        )

    def call(
        self, inputs: Tensor, training: bool | None = None, with_output: bool = False
    ) -> Tensor:
        """Predict the token that follows each position.

        Args:
            inputs: the inputs of the model.
            training: whether dropout is applied.
            with_output: whether to return the decoder's output as well. Defaults to False.

        Returns:
            Logits in the compute dtype, or float32 probabilities, (B, T, vocab_size). With
            `with_output`, these and the decoder's output (B, T, D).
        """
        output = self.decode(inputs, training).output
        predictions = self.logits(output)
        if not self.config.returns_logits:
            predictions = ops.softmax(ops.cast(predictions, "float32"), axis=-1)
        return (predictions, output) if with_output else predictions

    def _output_spec(self, inputs: Tensor) -> keras.KerasTensor:
        ids = inputs["target"] if isinstance(inputs, Mapping) else inputs
        logits = getattr(self.config, "returns_logits", False)  # an ensemble has no such option
        dtype = self.compute_dtype if logits else "float32"
        return keras.KerasTensor((*ids.shape, self.config.target_vocab_size), dtype)

    @property
    def _joins_loss(self) -> bool:
        """Whether a training step computes loss and projection together; see `forward_pass`."""
        return (
            type(self).call is TokenModel.call
            and self.config.returns_logits
            and not self.projection.use_bias
            and self.compute_loss == super().compute_loss
            and not self.has_loss_weights
            and self.activity_regularizer is None  # it would regularize the decoder's output too
            and getattr(self.loss, "joins_projection", False)
        )

    def train_step(self, *arguments: Any) -> Any:
        """Train on a batch; see `keras.Model`, whose arguments depend on the backend.

        Where `forward_pass` joins loss and projection, this is the step of Keras with it.
        """
        inputs, labels, weights = self.unpack_batch(arguments[-1])
        if not self._joins_loss:
            return super().train_step(*arguments[:-1], (inputs, labels, weights))
        import tensorflow as tf

        with tf.GradientTape() as tape:
            predictions, loss = forward_pass(self, inputs, labels, weights)
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        loss_mean = next(metric for metric in self.metrics if metric.name == "loss")
        loss_mean.update_state(loss, sample_weight=ops.shape(labels)[0])
        return self.compute_metrics(inputs, labels, predictions, weights)

    @functools.wraps(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Train the model; `class_weight` has weights by token id. See `keras.Model`."""
        arguments = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs).arguments
        del arguments["self"]
        # Keras would take rows of labels (B, T) for one-hot vectors.
        class_weight = arguments.pop("class_weight", None)
        if class_weight is None:
            return super().fit(**arguments)
        self._token_weights = self._weights_by_token(class_weight)
        self.train_function = None  # a compiled step contains the weights
        try:
            return super().fit(**arguments)
        finally:
            self._token_weights = self.train_function = None

    @functools.wraps(keras.Model.train_on_batch)
    def train_on_batch(
        self,
        x: Tensor,
        y: Tensor = None,
        sample_weight: Tensor = None,
        class_weight: Mapping[int, float] | None = None,
        return_dict: bool = False,
    ) -> Tensor:
        """Train on a batch; `class_weight` has weights by token id. See `keras.Model`."""
        if class_weight is not None:
            sample_weight = _weigh(self._weights_by_token(class_weight), y, sample_weight)
        return super().train_on_batch(x, y, sample_weight, return_dict=return_dict)

    def unpack_batch(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, labels, and the weights of rows or tokens, if any, of a training batch.

        The weights include the `class_weight` of `fit`.
        """
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(batch)
        if self._token_weights is not None:
            weights = _weigh(self._token_weights, labels, weights)
        return inputs, labels, weights

    def _weights_by_token(self, class_weight: Mapping[int, float]) -> np.ndarray:
        """Return the weight of each token, float32 (vocab_size,), 1 by default."""
        size = self.id_ranges[-1].size
        if outside := [token for token in class_weight if token not in range(size)]:
            raise ValueError(
                f"class_weight: expected weights by token id, from 0 to {size - 1}, got the key "
                f"{outside[0]!r}."
            )
        weights = np.ones(size, "float32")
        weights[list(class_weight)] = list(class_weight.values())
        return weights

    def decode(self, inputs: Tensor, training: bool | None = None) -> Decoded:
        """Return the decoder's output (B, T, D) and attention weights, for the inputs of a call."""
        raise NotImplementedError

    def logits(self, decoded: Tensor) -> Tensor:
        """Project decoder outputs (B, T, D) to logits (B, T, vocab_size)."""
        return self.projection(
            decoded, self.target_embedding.embeddings if self.projection.tied else None
        )

    def step(
        self,
        tokens: Tensor,
        position: Tensor,
        cache: list[Tensor],
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

    def _stepper(self, memory: tuple[Any, ...], use_cache: bool, tokens: Tensor) -> Stepper:
        """Return the stepper of a search; see `Transformer.start_search`.

        The memory has tensors (B, …) that `step` reads, or without a cache, `_decode_target`.
        """

        def step(beams: Beams, cache: list[Tensor], memory: Tensor) -> Step:
            if use_cache:
                result = self.step(beams.last, beams.position, cache, memory, beams.lineage)
            else:
                result = self._step_by_full_pass(beams, memory)
            if tokens is None:
                return result
            return result._replace(logits=ops.take(result.logits, tokens, axis=2))

        return Stepper(step, self.decoder.empty_cache if use_cache else lambda batch: [], memory)

    def _decode_target(self, target: Tensor, memory: Sequence[Tensor]) -> Decoded:
        """Decode all positions of target ids (B, T)."""
        raise NotImplementedError

    def _step_positions(
        self, position: Tensor, tokens: Tensor, beams: Tensor, cache: list[Tensor]
    ) -> tuple[Tensor, Tensor] | None:
        """Return the positions of queries and keys, if the decoder has relative positions.

        The position of the tokens (B, N) is a scalar or (N,).
        """
        if not self.decoder.relative_positions:
            return None
        columns = ops.shape(cache[0].key)[2] + ops.shape(tokens)[1]
        keys = key_positions(columns, beams, len(self.config.target_prefix))
        return ops.reshape(position, (-1,)), keys

    def _embed(self, target: Tensor, training: bool | None = None) -> Tensor:
        return self.target_positions(self.target_embedding(target), training=training)

    def _step_by_full_pass(self, beams: Beams, memory: Tensor) -> Step:
        """Run a decoding step without a cache, as a full pass over ids (B, M, t+1)."""
        batch, num_beams, length = ops.shape(beams.ids)
        sentences = ops.arange(batch * num_beams) // num_beams  # (B*M,)
        ids = ops.reshape(beams.ids, (batch * num_beams, length))
        rows = [ops.take(part, sentences, axis=0) for part in memory]
        decoded = self._decode_target(ids, rows)
        last = ops.reshape(decoded.output[:, -1], (batch, num_beams, self.config.model_dim))
        attention = None
        if self.decoder.cross_attention:
            cross = decoded.cross_weights[-1]
            shape = (batch, num_beams, ops.shape(cross)[-1])
            attention = ops.reshape(ops.mean(cross, axis=1)[:, -1], shape)
        return self._to_step(last, [], attention)

    def _to_step(self, output: Tensor, cache: list[Tensor], attention: Tensor) -> Step:
        if attention is None:
            attention = ops.zeros((*ops.shape(output)[:2], 0), dtype="float32")
        return Step(self.logits(output), cache, attention)


def mean_of(tensors: Sequence[Tensor]) -> Tensor:
    """Return the mean of tensors of one shape."""
    total = functools.reduce(operator.add, tensors)
    return total if len(tensors) == 1 else total / len(tensors)


def mean_log_probs(logits: Tensor) -> Tensor:
    """Return the log-probabilities of logits (…, vocab_size), float32; for a list, their mean."""
    return mean_of(
        [ops.log_softmax(ops.cast(part, "float32"), axis=-1) for part in keras.tree.flatten(logits)]
    )


def _weigh(by_token: np.ndarray, labels: Tensor, weights: Tensor) -> Tensor:
    """Return weights (B, T) of labels (B, T): by token id, times those of rows or tokens if any."""
    return ops.take(by_token, ops.cast(labels, "int32"), axis=0) * token_weights(labels, weights)


def forward_pass(
    model: TokenModel, inputs: Tensor, labels: Tensor, weights: Tensor = None
) -> tuple[Tensor, Tensor]:
    """Compute the predictions and the loss of a batch in training.

    Under TensorFlow on one device, `LabelSmoothedCrossentropy` is joined with the projection of a
    `TokenModel` to the vocabulary, see `LabelSmoothedCrossentropy.of_projection`. The loss and its
    gradients are the same either way. Nothing is joined if there are weights or losses of layers,
    or an output bias, or if a subclass replaces `call` or `compute_loss`.
    """
    if not model._joins_loss:
        predictions = model(inputs, training=True)
        return predictions, model.compute_loss(inputs, labels, predictions, weights, training=True)
    logits, output = model(inputs, training=True, with_output=True)
    if model.losses:  # of layers and weights, which Keras adds
        return logits, model.compute_loss(inputs, labels, logits, weights, training=True)
    table = (
        model.target_embedding.embeddings
        if model.projection.tied
        else ops.transpose(model.projection.kernel)
    )
    return logits, model.loss.of_projection(labels, logits, output, table, weights)
