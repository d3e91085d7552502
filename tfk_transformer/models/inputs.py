"""Checks of a model's inputs, for clear messages instead of errors of the backend.

Names, shapes and types are checked whenever a model is called or traced. Values are checked where
they are known, in arrays and eager tensors, and never inside a compiled function: the batches of a
data set are checked before a step reads them, see `checked_batches`. Losses and metrics are checked
by `compile`.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import keras

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.words import nearest
from tfk_transformer.models.checked_batches import IdRange

# The remedy for a name of Hugging Face's models.
OTHER_NAMES = {
    "input_ids": "Its name here is 'source'",
    "attention_mask": "Its name here is 'source_mask'",
    "decoder_input_ids": "Its name here is 'target'",
    "labels": "Pass labels as y",
}


def check_names(inputs: object, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    """Check that `inputs` is a dictionary with the needed names, and without unknown names.

    Unknown names, such as a misspelt mask, would be ignored.
    """
    if not isinstance(inputs, Mapping):
        items = ", ".join(f'"{name}": ids' for name in needed)
        raise ValueError(
            f"inputs: expected a dictionary {{{items}}}, got {_describe(inputs)}; give each array "
            "its name."
        )
    names = (*needed, *optional)
    for name in inputs:
        if name not in names:
            hint = f" {OTHER_NAMES[name]}." if name in OTHER_NAMES else nearest(name, names)
            raise ValueError(f"inputs: expected {', '.join(names)}, got '{name}'.{hint}")
    if missing := [name for name in needed if name not in inputs]:
        raise ValueError(
            f"inputs: expected {', '.join(needed)}, got none named {', '.join(missing)}."
        )


def check_ids(name: str, ids: Tensor, vocab_size: int) -> None:
    """Check that ids are integers (batch, length), and below `vocab_size` where they are known."""
    shape = _shape(name, ids)
    if shape is not None and len(shape) != 2:
        remedies = {
            1: "add a batch axis: ids[None, :]",
            3: "pass ids, not one-hot vectors or embeddings",
        }
        remedy = remedies.get(len(shape), "pass one row a text")
        raise ValueError(
            f"{name}: expected ids of shape (batch, length), got shape {shape}; {remedy}."
        )
    try:
        dtype = keras.backend.standardize_dtype(ids.dtype)
    except ValueError:  # of NumPy, for strings and objects
        dtype = str(ids.dtype)
    if "int" not in dtype and not _averaged_over_devices():
        numbers = "float" in dtype or dtype == "bool"
        remedy = (
            "convert them, for instance with ids.astype('int32')"
            if numbers
            else "encode texts with a tokenizer, for instance with tokenizer.graph_encode(texts)"
        )
        raise ValueError(f"{name}: expected integer ids, got {dtype}; {remedy}.")
    IdRange(name, vocab_size).check(ids)


def check_same_rows(inputs: Mapping[str, Tensor]) -> None:
    """Check that source and target have equally many rows, and that a mask has the source's shape.

    Only known numbers are compared.
    """
    shapes = {name: _shape(name, array) for name, array in inputs.items()}
    source, target, mask = (shapes.get(name) for name in ("source", "target", "source_mask"))
    if source and target and _differ(source[:1], target[:1]):
        raise ValueError(
            f"inputs: expected as many rows in target as in source, got {target[0]} and "
            f"{source[0]}."
        )
    if source and mask and (len(mask) != 2 or _differ(source, mask)):
        raise ValueError(f"source_mask: expected the shape of source, {source}, got {mask}.")


def check_from_logits(argument: str, functions: Any, logits: bool) -> None:
    """Check that losses or metrics read what the model returns: logits or probabilities.

    Args:
        argument: the argument of `compile`: "loss", "metrics" or "weighted_metrics".
        functions: its value: a name, a function or an object, or a list or dictionary of these.
        logits: whether the model returns logits.
    """
    for function in keras.tree.flatten(functions):
        if _from_logits(argument, function) not in (logits, None):
            name = function
            if not isinstance(function, str):
                name = getattr(function, "__name__", type(function).__name__)
            raise ValueError(
                f"{argument}: expected from_logits={logits} for a model that returns "
                f"{'logits' if logits else 'probabilities'}, got from_logits={not logits} of "
                f"{name}; pass {_object_name(argument, name)}(from_logits={logits})."
            )


def _differ(one: tuple[int | None, ...], other: tuple[int | None, ...]) -> bool:
    return any(None not in pair and pair[0] != pair[1] for pair in zip(one, other, strict=True))


def _shape(name: str, array: Tensor) -> tuple[int | None, ...] | None:
    """Return the shape of an array or tensor; None if not even its rank is known."""
    if not hasattr(array, "shape"):
        remedy = (
            "pass the array of ids itself"
            if isinstance(array, Mapping)
            else 'pad its rows with keras.utils.pad_sequences(ids, padding="post")'
        )
        raise ValueError(
            f"{name}: expected an array or tensor of ids (batch, length), got {_describe(array)}; "
            f"{remedy}."
        )
    if hasattr(array, "row_splits"):
        raise ValueError(
            f"{name}: expected a dense tensor of ids (batch, length), got a ragged one; pad its "
            "rows with ids.to_tensor()."
        )
    try:
        return tuple(array.shape)
    except ValueError:  # TensorFlow's, of unknown rank
        return None


def _averaged_over_devices() -> bool:
    """Return whether Keras may have averaged ids over devices, to float64.

    Under a strategy of `tf.distribute`, `fit` builds a model with the mean of the devices' first
    batches (`TensorFlowTrainer._maybe_symbolic_build`), in the cross-replica context. Training
    steps run in a replica context, with the ids themselves.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return bool(tf.distribute.in_cross_replica_context())


def _describe(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, Mapping):
        return "a dictionary"
    return f"a value of type {type(value).__name__}"


def _from_logits(argument: str, function: Any) -> bool | None:
    """Return whether a loss or metric reads logits; None if it does not say."""
    if isinstance(function, str):
        if function in ("crossentropy", "ce"):  # metrics whose class depends on the labels
            return False
        try:
            function = (keras.losses if argument == "loss" else keras.metrics).get(function)
        except ValueError:  # Keras itself refuses the name
            return None
    if isinstance(function, keras.losses.Loss | keras.metrics.Metric):
        return function.get_config().get("from_logits")
    parameters = inspect.signature(function).parameters if callable(function) else {}
    return parameters["from_logits"].default if "from_logits" in parameters else None


def _object_name(argument: str, name: str) -> str:
    """Return the class of Keras for the name of a function, or the name itself."""
    if name in ("crossentropy", "ce"):
        name = "sparse_categorical_crossentropy"
    module = "losses" if argument == "loss" else "metrics"
    class_name = name.title().replace("_", "") if name.islower() else name
    return f"keras.{module}.{class_name}" if hasattr(getattr(keras, module), class_name) else name
