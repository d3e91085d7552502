"""Models that predict tokens: decoder, projection to the vocabulary, and how they are trained."""

import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.keras_internals import has_loss_weights
from tfk_transformer.layers.decoder import Decoded, Decoder
from tfk_transformer.layers.relative_positions import StepPositions, key_positions
from tfk_transformer.layers.vocabulary_projection import Embedding, VocabularyProjection
from tfk_transformer.losses import LabelSmoothedCrossentropy, shared_by_devices, token_weights
from tfk_transformer.models.configured_model import ConfiguredModel
from tfk_transformer.models.search_steps import Beams, Step, Stepper, restrict_logits


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

    def _add_decoder(
        self,
        vocab_size: int,
        cross_attention: bool,
        tied: bool,
        embedding: Embedding | None = None,
    ) -> None:
        c = self.config
        dtype = {"dtype": self.dtype_policy}
        self.target_embedding = embedding or self._embedding("target_embedding", vocab_size, tied)
        self.target_positions = self._positions("target_positions", len(c.target_prefix))
        self.decoder = self.decoder_type(
            c.decoder_options(),
            c.decoder_layers,
            c.decoder_final_norm,
            cross_attention,
            c.max_length if c.decoder_mixer == "ssru" else None,
            self._relative_options() if c.decoder_mixer == "attention" else None,
            **dtype,
            name="decoder",
        )
        self.projection = VocabularyProjection(
            vocab_size, tied, c.output_bias, **dtype, name="output"
        )

    def _build_all(
        self, embeddings: Iterable[Embedding], layers: Iterable[keras.layers.Layer]
    ) -> None:
        """Make all weights. Their shapes follow from the configuration."""
        for embedding in {id(e): e for e in embeddings}.values():
            embedding.build((None, None))
        for layer in layers:
            layer.build((None, None, self.config.model_dim))

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
        if self.config.output != "logits":
            predictions = ops.softmax(ops.cast(predictions, "float32"), axis=-1)
        return (predictions, output) if with_output else predictions

    def _output_spec(self, inputs: Tensor) -> keras.KerasTensor:
        ids = inputs["target"] if isinstance(inputs, Mapping) else inputs
        logits = getattr(self.config, "output", "") == "logits"  # an ensemble has no such option
        dtype = self.compute_dtype if logits else "float32"
        return keras.KerasTensor((*ids.shape, self.config.target_vocab_size), dtype)

    @property
    def _joins_loss(self) -> bool:
        """Whether a training step computes loss and projection together; see `forward_pass`."""
        return (
            keras.backend.backend() == "tensorflow"
            and type(self).call is TokenModel.call
            and self.compute_loss == super().compute_loss
            and isinstance(self.loss, LabelSmoothedCrossentropy)
            and self.loss.joins_projection
            and self.config.output == "logits"
            and not self.projection.use_bias
            and not has_loss_weights(self)
            and self.activity_regularizer is None  # it would regularize the decoder's output too
            and not shared_by_devices()
        )

    def train_step(self, *arguments: Any) -> Any:
        """Train on a batch; see `keras.Model`.

        The arguments depend on the backend. Where `forward_pass` joins loss and
        projection, this is the step of Keras with `forward_pass`.
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
        """Return the weight of each token, float32 (vocab_size,), 1 by default.

        Raises:
            ValueError: if a key is not an id of a token.
        """
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
        """Return the stepper of a search.

        Args:
            memory: tensors (B, …) that `step` reads, or without a cache, `_decode_target`.
            use_cache: see `Transformer.start_search`.
            tokens: see `Transformer.start_search`.
        """

        def cached_step(beams: Beams, cache: list[Tensor], memory: Tensor) -> Step:
            return self.step(beams.ids[:, :, -1], beams.position, cache, memory, beams.lineage)

        stepper = (
            Stepper(cached_step, self.decoder.empty_cache, memory)
            if use_cache
            else Stepper(self._step_by_full_pass, lambda batch: [], memory)
        )
        return restrict_logits(stepper, tokens)

    def _decode_target(self, target: Tensor, memory: Sequence[Tensor]) -> Decoded:
        """Decode all positions of target ids (B, T)."""
        raise NotImplementedError

    def _step_positions(
        self, position: Tensor, tokens: Tensor, beams: Tensor, cache: list[Tensor]
    ) -> StepPositions | None:
        """Return the positions of a decoding step, if the decoder has relative positions.

        Args:
            position: the position of the tokens, a scalar or (N,).
            tokens: ids (B, N).
            beams: M.
            cache: the KV cache of each layer.
        """
        if not self.decoder.relative_positions:
            return None
        columns = ops.shape(cache[0].key)[2] + ops.shape(tokens)[1]
        keys = key_positions(columns, beams, len(self.config.target_prefix))
        return StepPositions(ops.reshape(position, (-1,)), keys)

    def _embed(self, target: Tensor, training: bool | None = None) -> Tensor:
        return self.target_positions(self.target_embedding(target), training=training)

    def _step_by_full_pass(self, beams: Beams, cache: Tensor, memory: Tensor) -> Step:
        """Run a decoding step without a cache, as a full pass over ids (B, M, t+1)."""
        batch, num_beams, length = ops.shape(beams.ids)
        sentences = ops.arange(batch * num_beams) // num_beams  # (B*M,)
        ids = ops.reshape(beams.ids, (batch * num_beams, length))
        rows = [ops.take(part, sentences, axis=0) for part in memory]
        decoded = self._decode_target(ids, rows)
        last = ops.reshape(decoded.output[:, -1], (batch, num_beams, self.config.model_dim))
        cross = decoded.cross_weights[-1]
        attention = (
            None
            if not self.decoder.cross_attention
            else ops.reshape(
                ops.mean(cross, axis=1)[:, -1], (batch, num_beams, ops.shape(cross)[-1])
            )
        )
        return self._to_step(last, [], attention)

    def _to_step(self, output: Tensor, cache: list[Tensor], attention: Tensor) -> Step:
        if attention is None:
            attention = ops.zeros((*ops.shape(output)[:2], 0), dtype="float32")
        return Step(self.logits(output), cache, attention)


def _weigh(by_token: np.ndarray, labels: Tensor, weights: Tensor) -> Tensor:
    """Return weights (B, T) of labels (B, T): by token id, times those of rows or tokens if any."""
    return ops.take(by_token, ops.cast(labels, "int32"), axis=0) * token_weights(labels, weights)


def forward_pass(
    model: keras.Model, inputs: Tensor, labels: Tensor, weights: Tensor = None
) -> tuple[Tensor, Tensor]:
    """Compute the predictions and the loss of a batch in training.

    Under TensorFlow on one device, `LabelSmoothedCrossentropy` is joined with the projection of a
    `TokenModel` to the vocabulary, see `LabelSmoothedCrossentropy.of_projection`. The loss and its
    gradients are the same either way. Nothing is joined if there are weights or losses of layers,
    or an output bias, or if a subclass replaces `call` or `compute_loss`.

    Args:
        model: a compiled model.
        inputs: the inputs of the model.
        labels: the labels of the batch, ids (B, T) for a `TokenModel`.
        weights: the weights of rows (B,) or of tokens (B, T). Defaults to None: all 1.

    Returns:
        The predictions of the model, and the loss, a scalar.
    """
    if not isinstance(model, TokenModel) or not model._joins_loss:
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
