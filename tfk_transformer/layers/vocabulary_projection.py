"""Both ends of a model: embeddings of tokens, and the projection to a logit for each token."""

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.keras_internals import take_rows
from tfk_transformer.layers.base import BaseLayer


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Embedding(keras.layers.Embedding):
    """A `keras.layers.Embedding` with a dense gradient; see `take_rows`.

    As Keras quantizes no subclasses, a projection with a tied table reads float32.
    """

    def call(self, inputs: Tensor) -> Tensor:
        """Map ids (B, T) to vectors (B, T, D), in the compute dtype."""
        rows = take_rows(self.embeddings, ops.cast(inputs, "int32"))
        return ops.cast(rows, self.compute_dtype)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class VocabularyProjection(BaseLayer):
    """Project to logits with a `kernel` (D, vocab_size), or a tied embedding table.

    If `tied`, the embedding table passed to `call` replaces the kernel (arXiv:1608.05859).
    """

    arguments = ("vocab_size", "tied", "use_bias")

    def __init__(
        self, vocab_size: int, tied: bool = False, use_bias: bool = False, **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.tied = tied
        self.use_bias = use_bias

    def build(self, x_shape: Shape, table_shape: Shape | None = None) -> None:
        """Make the weights for inputs (…, D)."""
        model_dim = x_shape[-1]
        self.kernel = self.bias = None
        if not self.tied:
            # Gives logits of unit variance for normalized inputs.
            initializer = keras.initializers.RandomNormal(stddev=(model_dim or 1) ** -0.5)
            self.kernel = self.add_weight(
                name="kernel", shape=(model_dim, self.vocab_size), initializer=initializer
            )
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros")

    def compute_output_shape(  # type: ignore[override]
        self, x_shape: Shape, table_shape: Shape | None = None
    ) -> Shape:
        """Return the shape of the logits, (…, vocab_size)."""
        return (*x_shape[:-1], self.vocab_size)

    def call(self, x: Tensor, table: Tensor = None) -> Tensor:
        """Map (B, T, D), and the table (vocab_size, D) if tied, to logits (B, T, vocab_size)."""
        batch, length, model_dim = ops.shape(x)
        rows = ops.reshape(x, (-1, model_dim))  # (B*T, D), so that it is one plain matrix product
        kernel = ops.transpose(table) if self.tied else self.kernel
        logits = ops.matmul(rows, ops.cast(kernel, rows.dtype))
        if self.use_bias:
            logits = logits + ops.cast(self.bias, logits.dtype)
        return ops.reshape(logits, (batch, length, self.vocab_size))
