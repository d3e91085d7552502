"""Layer normalization with an explicit gradient, and normalization by the root mean square."""

from collections.abc import Callable

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.keras_internals import custom_gradient


@keras.saving.register_keras_serializable(package="tfk_transformer")
class LayerNorm(keras.layers.LayerNormalization):
    """A `keras.layers.LayerNormalization` over the last axis that trains faster on a CPU.

    Training takes two thirds of the time. The layer computes y = n gamma + beta with
    n = (x - mean(x)) / sqrt(var(x) + epsilon) (arXiv:1607.06450, section 3), in float32 whatever
    the compute dtype. With g = dy gamma, the gradient is
    dx = (g - mean(g) - n mean(g n)) / sqrt(var(x) + epsilon).

    Args:
        epsilon: added to the variance. Defaults to 1e-6.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: object) -> None:
        super().__init__(epsilon=epsilon, autocast=False, **kwargs)

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        """Return inputs (…, D) normalized, in the compute dtype."""
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
class RMSNorm(keras.layers.Layer):
    """Divide vectors by their root mean square (arXiv:1910.07467).

    The layer computes y = x / sqrt(mean(x^2) + epsilon) gamma over the last axis, in float32
    whatever the compute dtype.

    Args:
        epsilon: added to the mean square. Defaults to 1e-6.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: object) -> None:
        super().__init__(autocast=False, **kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        """Make `gamma` (D,) for inputs (…, D)."""
        self.gamma = self.add_weight(name="gamma", shape=(input_shape[-1],), initializer="ones")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the output, which is the shape of the input."""
        return input_shape

    def call(self, inputs: Tensor) -> Tensor:
        """Return inputs (…, D) normalized, in the compute dtype."""
        normal = ops.rms_normalization(inputs, scale=self.gamma, epsilon=self.epsilon)
        return ops.cast(normal, self.compute_dtype)

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "epsilon": self.epsilon}


# By `LayerOptions.norm_type`.
NORMS: dict[str, type[keras.layers.Layer]] = {"layer": LayerNorm, "rms": RMSNorm}


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
