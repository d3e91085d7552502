"""Both ends of a model: embeddings of tokens, and the projection to a logit for each token."""

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.keras_internals import take_rows


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
class VocabularyProjection(keras.layers.Layer):
    """Project to logits with a `kernel` (D, vocab_size), or a tied embedding table.

    Tied tables: arXiv:1608.05859.

    Args:
        vocab_size: number of tokens.
        tied: whether the embedding table passed to `call` replaces the kernel. Defaults to False.
        use_bias: whether there is a `bias` (vocab_size,). Defaults to False.
        **kwargs: arguments of `keras.layers.Layer`.
    """

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

    def compute_output_shape(self, x_shape: Shape, table_shape: Shape | None = None) -> Shape:
        """Return the shape of the logits, (…, vocab_size)."""
        return (*x_shape[:-1], self.vocab_size)

    def call(self, x: Tensor, table: Tensor = None) -> Tensor:
        """Map (B, T, D) to logits (B, T, vocab_size).

        A tied projection also needs the table (vocab_size, D).
        """
        batch, length, model_dim = ops.shape(x)
        rows = ops.reshape(x, (-1, model_dim))  # (B*T, D), so that it is one plain matrix product
        kernel = ops.transpose(table) if self.tied else self.kernel
        logits = ops.matmul(rows, ops.cast(kernel, rows.dtype))
        if self.use_bias:
            logits = logits + ops.cast(self.bias, logits.dtype)
        return ops.reshape(logits, (batch, length, self.vocab_size))

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "tied": self.tied,
            "use_bias": self.use_bias,
        }
