"""Adam and AdamW with a faster update under TensorFlow."""

import keras

from tfk_transformer.array_types import Tensor
from tfk_transformer.keras_internals import adam_moments

__all__ = ["Adam", "AdamW"]


class _OnePass:
    """Update each variable in one pass, with TensorFlow's operation for Adam."""

    def apply(
        self, grads: list[Tensor], trainable_variables: list[keras.Variable] | None = None
    ) -> None:
        """Update all variables; see `keras.optimizers.Optimizer`."""
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            # Slices of a row are added before they are clipped and squared, unlike in Keras 3.15.
            grads = [
                tf.convert_to_tensor(grad) if isinstance(grad, tf.IndexedSlices) else grad
                for grad in grads
            ]
        super().apply(grads, trainable_variables)  # type: ignore[misc]

    def update_step(
        self: Tensor, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        """Update one variable and its moments; see `keras.optimizers.Optimizer`."""
        if keras.backend.backend() != "tensorflow" or self.amsgrad:
            super().update_step(gradient, variable, learning_rate)  # type: ignore[misc]
            return
        import tensorflow as tf

        dtype = variable.dtype
        first, second = adam_moments(self, variable)
        count = tf.cast(self.iterations + 1, dtype)
        beta_1, beta_2 = (tf.cast(beta, dtype) for beta in (self.beta_1, self.beta_2))
        # Keras passes a dozen times over weights and moments. The formula is the same, from the end
        # of section 2 of arXiv:1412.6980.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=first.value.handle,
            v=second.value.handle,
            beta1_power=beta_1**count,
            beta2_power=beta_2**count,
            lr=tf.cast(learning_rate, dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.cast(self.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Adam(_OnePass, keras.optimizers.Adam):
    """`keras.optimizers.Adam`, in half the time on a CPU under TensorFlow.

    Do not use it under `tf.distribute`.
    """


@keras.saving.register_keras_serializable(package="tfk_transformer")
class AdamW(_OnePass, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW`, in half the time on a CPU under TensorFlow.

    Do not use it under `tf.distribute`.
    """
