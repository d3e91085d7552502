"""The only private names of Keras that this package uses, each behind a function.

Keras has no public way to get these values. tests/test_keras_internals.py reports the names that a
new version of Keras lacks.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras


def has_loss_weights(model: "keras.Model") -> bool:
    """Return whether `compile` received weights of the losses."""
    return bool(model._compile_loss._user_loss_weights)


def adam_moments(
    optimizer: "keras.optimizers.Adam", variable: "keras.Variable"
) -> tuple["keras.Variable", "keras.Variable"]:
    """Return Adam's first and second moments of the gradients of a variable."""
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]
