"""The private names of Keras that have no public ones, and what differs between its backends."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras


def custom_gradient(function: Callable[..., tuple[Any, Callable[[Any], Any]]]) -> Any:
    """Decorate a function that returns its output, and gradients of the upstream gradient."""
    from keras import ops

    def with_adapted_gradient(*inputs: Any) -> tuple[Any, Callable[..., Any]]:
        output, gradient = function(*inputs)

        # With PyTorch, Keras also passes the inputs, and names the upstream gradient.
        def adapted(*arguments: Any, upstream: Any = None) -> Any:
            return gradient(arguments[0] if upstream is None else upstream)

        return output, adapted

    return ops.custom_gradient(with_adapted_gradient)


def take_rows(table: Any, indices: Any) -> Any:
    """Return the rows of a table (N, D) at integer indices (…): (…, D).

    TensorFlow's own gradient lists a row once for each use, and Keras's Adam and clipping by norm
    add up their squares. Along another axis than the first, the gradient is dense.
    """
    import keras
    from keras import ops

    if keras.backend.backend() != "tensorflow":
        return ops.take(table, indices, axis=0)
    return ops.squeeze(ops.take(ops.expand_dims(table, 0), indices, axis=1), axis=0)


def adam_moments(
    optimizer: "keras.optimizers.Adam", variable: "keras.Variable"
) -> tuple["keras.Variable", "keras.Variable"]:
    """Return Adam's first and second moments of the gradients of a variable."""
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def all_layers(layer: "keras.layers.Layer") -> list["keras.layers.Layer"]:
    """Return a layer, and the layers in it at any depth."""
    layers: list[keras.layers.Layer] = layer._flatten_layers()
    return layers


def never_initialize(layer: "keras.layers.Layer") -> None:
    """Leave the variables of a layer without values that a `StatelessScope` has not initialized."""
    # Keras would initialize them when the next such scope ends.
    for variable in layer.variables:
        if variable._value is None:
            variable._deferred_initialize = lambda: None


def select_policies(layer: "keras.layers.Layer") -> None:
    """Replace a `DTypePolicyMap`, in a layer and layers in it, with the policy of each layer."""
    # Keras does not save a quantized layer that has a map.
    for each in all_layers(layer):
        policies = each._dtype_policy
        if hasattr(policies, "default_policy") and each.path:
            each._dtype_policy = policies[each.path]
