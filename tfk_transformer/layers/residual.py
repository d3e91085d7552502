"""The residual connection around each sublayer, with its norm and dropout."""

from collections.abc import Callable

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.keras_internals import custom_gradient
from tfk_transformer.layers.base import BaseLayer, Dropout


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Residual(BaseLayer):
    """Connect a sublayer's output to its input.

    "pre":          x + dropout(sublayer(norm(x)))   (arXiv:2002.04745)
    "post":         norm(x + dropout(sublayer(x)))   ("Attention Is All You Need", section 5.4)
    "post_dropout": dropout(norm(x + sublayer(x)))

    The sublayer runs between the two halves of the connection:
    `y = sublayer(residual.enter(x)); x = residual(x, y)`.

    Args:
        norm: "pre", "post" or "post_dropout". Defaults to "pre".
        dropout: probability of dropping an element while training. Defaults to 0.
        epsilon: added to the variance in the norm. Defaults to 1e-6.
        norm_type: "layer" or "rms"; see `NORMS`. Defaults to "layer".
        **kwargs: arguments of `keras.layers.Layer`.
    """

    arguments = ("norm", "dropout", "epsilon", "norm_type")

    def __init__(
        self,
        norm: str = "pre",
        dropout: float = 0.0,
        epsilon: float = 1e-6,
        norm_type: str = "layer",
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.norm = norm
        self.dropout = dropout
        self.epsilon = epsilon
        self.norm_type = norm_type
        self.normalizes_input = norm == "pre"
        self.drops_last = norm == "post_dropout"
        self.layer_norm = make_norm(norm_type, epsilon, self.dtype_policy)
        self.output_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape: Shape, output_shape: Shape | None = None) -> None:
        """Make the weights of the norm for inputs (…, D)."""
        if not self.layer_norm.built:  # a call of `enter` builds it first
            self.layer_norm.build(x_shape)

    def enter(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer, (B, T, D): norm(x) if `norm` is "pre", otherwise x."""
        return self.layer_norm(x) if self.normalizes_input else x

    def call(self, x: Tensor, output: Tensor, training: bool | None = None) -> Tensor:
        """Join the input `x` and the `output` of the sublayer, both (B, T, D), to (B, T, D)."""
        if self.drops_last:
            return self.output_dropout(self.layer_norm(x + output), training=training)
        total = x + self.output_dropout(output, training=training)
        return total if self.normalizes_input else self.layer_norm(total)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class LayerNorm(keras.layers.LayerNormalization):
    """A `keras.layers.LayerNormalization` that trains in two thirds of the time on a CPU.

    It computes y = n gamma + beta with n = (x - mean(x)) / sqrt(var(x) + epsilon) over the last
    axis (arXiv:1607.06450, section 3), in float32 whatever the compute dtype. With g = dy gamma,
    the gradient is dx = (g - mean(g) - n mean(g n)) / sqrt(var(x) + epsilon).
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: object) -> None:
        super().__init__(epsilon=epsilon, autocast=False, **kwargs)

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        """Normalize inputs (…, D), in the compute dtype."""
        if not training:
            return super().call(inputs)
        rows = ops.reshape(inputs, (-1, inputs.shape[-1]))
        # TensorFlow's custom gradients accept no variables; a copy is a plain tensor.
        gamma, beta = (ops.cast(ops.copy(w), "float32") for w in (self.gamma, self.beta))
        normal = _normalize(rows, gamma, beta, self.epsilon)
        return ops.reshape(ops.cast(normal, self.compute_dtype), ops.shape(inputs))

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {**keras.layers.Layer.get_config(self), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="tfk_transformer")
class RMSNorm(BaseLayer):
    """Divide vectors by their root mean square (arXiv:1910.07467), in float32.

    It computes y = x / sqrt(mean(x^2) + epsilon) gamma over the last axis.
    """

    arguments = ("epsilon",)

    def __init__(self, epsilon: float = 1e-6, **kwargs: object) -> None:
        super().__init__(autocast=False, **kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        """Make `gamma` (D,) for inputs (…, D)."""
        self.gamma = self.add_weight(name="gamma", shape=(input_shape[-1],), initializer="ones")

    def call(self, inputs: Tensor) -> Tensor:
        """Return inputs (…, D) normalized, in the compute dtype."""
        normal = ops.rms_normalization(inputs, scale=self.gamma, epsilon=self.epsilon)
        return ops.cast(normal, self.compute_dtype)


# By `LayerOptions.norm_type`.
NORMS: dict[str, type[keras.layers.Layer]] = {"layer": LayerNorm, "rms": RMSNorm}


def make_norm(norm_type: str, epsilon: float, dtype: Tensor, name: str = "norm") -> Tensor:
    """Return a norm over the last axis; see `NORMS`."""
    return NORMS[norm_type](epsilon=epsilon, dtype=dtype, name=name)


def _normalize(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Normalize rows (N, D), then scale and shift them by gamma and beta (D,): float32 (N, D)."""

    @custom_gradient
    def normalize(
        x: Tensor, gamma: Tensor, beta: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
        wide = ops.cast(x, "float32")
        centered = wide - ops.mean(wide, axis=-1, keepdims=True)
        scale = ops.rsqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + epsilon)
        normal = centered * scale

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            products = upstream * normal
            # Sums take a third of the time as products with a vector.
            ones = ops.ones((1, ops.shape(x)[0]))
            weights = gamma[:, None] / x.shape[-1]
            mean = ops.matmul(upstream, weights)  # (N, 1)
            mean_product = ops.matmul(products, weights)
            slopes = (upstream * gamma - normal * mean_product - mean) * scale
            return (
                ops.cast(slopes, x.dtype),
                ops.matmul(ones, products)[0],
                ops.matmul(ones, upstream)[0],
            )

        return normal * gamma + beta, gradient

    return normalize(x, gamma, beta)
