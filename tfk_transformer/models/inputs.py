"""Checks of a model's inputs, for clear messages instead of errors of the backend.

Names, shapes and types are checked whenever a model is called or traced. Values are checked where
they are known, in arrays and eager tensors, and never inside a compiled function: the batches of a
data set are checked before a step reads them, see `checked_batches`.
"""

from collections.abc import Mapping

import keras

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.words import nearest
from tfk_transformer.models.checked_batches import IdRange


def check_names(inputs: object, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    """Check that `inputs` is a dictionary with the needed names, and without unknown names.

    Unknown names would be ignored.

    Args:
        inputs: the inputs of a call.
        needed: required names.
        optional: names that may be missing.

    Raises:
        ValueError: if `inputs` is not a dictionary, lacks a name, or has an unknown one, such as a
            misspelt mask.
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
            raise ValueError(
                f"inputs: expected {', '.join(names)}, got '{name}'.{nearest(name, names)}"
            )
    if missing := [name for name in needed if name not in inputs]:
        raise ValueError(
            f"inputs: expected {', '.join(needed)}, got none named {', '.join(missing)}."
        )


def check_ids(name: str, ids: Tensor, vocab_size: int) -> None:
    """Check the shape and the type of token ids, and their values where they are known.

    Args:
        name: of the argument, for the error message.
        ids: the ids to check, integers (batch, length).
        vocab_size: number of tokens; ids are below it.

    Raises:
        ValueError: if `ids` is not an array or tensor of rank 2, is not of an integer type, or has
            ids outside the vocabulary.
    """
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
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if "int" not in dtype and not _averaged_over_devices():
        raise ValueError(
            f"{name}: expected integer ids, got {dtype}; convert them, for instance with "
            "ids.astype('int32')."
        )
    IdRange(name, vocab_size).check(ids)


def check_same_rows(inputs: Mapping[str, Tensor]) -> None:
    """Check that source and target have equally many rows, and that a mask has the source's shape.

    Args:
        inputs: the arrays by name, each of rank 2.

    Raises:
        ValueError: if known numbers differ.
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


def _differ(one: tuple[int | None, ...], other: tuple[int | None, ...]) -> bool:
    return any(None not in pair and pair[0] != pair[1] for pair in zip(one, other, strict=True))


def _shape(name: str, array: Tensor) -> tuple[int | None, ...] | None:
    """Return the shape of an array or tensor; None if not even its rank is known."""
    if not hasattr(array, "shape"):
        remedy = (
            "pass the array of ids itself"
            if isinstance(array, Mapping)
            else "convert it with numpy.array"
        )
        raise ValueError(
            f"{name}: expected an array or tensor of ids (batch, length), got {_describe(array)}; "
            f"{remedy}."
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
