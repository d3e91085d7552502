"""Checks of the ids in data for `fit`, `evaluate` and `predict`, batch by batch.

Compiled functions cannot refuse an id: XLA replaces one outside the vocabulary by another id, JAX
computes NaN, and TensorFlow's error names an operation of the graph. So each batch is checked
before a step reads it.
"""

import contextlib
import copy
import functools
import re
import types
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from tfk_transformer.array_types import Tensor, value_outside
from tfk_transformer.constants import START_ID

LABELS_NAME = "labels"

_MESSAGE = re.compile(
    r"\w+: expected ids from 0 to \d+, got [^;]*; the (?:vocabulary|classes) [^.]*\."
)
_checked: "weakref.WeakSet[Any]" = weakref.WeakSet()  # data whose batches are already checked


class IdRange(NamedTuple):
    """The ids that an array may contain: from 0 to `size` - 1."""

    name: str  # of the argument, for the error message
    size: int
    classes: bool = False  # whether the ids are classes instead of tokens

    def check(self, ids: Tensor) -> None:
        """Check the values of ids, where they are known.

        Raises:
            ValueError: if a value is outside the range.
        """
        if (value := value_outside(ids, self.size)) is not None:
            raise ValueError(self.message(value))

    def message(self, value: object) -> str:
        """Return the error message for a value outside the range."""
        reason = (
            f"the classes of the configuration are {self.size}"
            if self.classes
            else f"the vocabulary of the configuration has {self.size} tokens, and padding is 0"
        )
        return f"{self.name}: expected ids from 0 to {self.size - 1}, got {value}; {reason}."


class TargetCheck:
    """Warn of targets in the first batch of `fit` from which a model cannot learn to translate.

    Args:
        name: the name of the target among the inputs.
        has_start: whether targets begin with the start token.
    """

    def __init__(self, name: str, has_start: bool) -> None:
        self.name = name
        self.has_start = has_start
        self.done = False

    def __call__(self, target: Tensor, labels: Tensor) -> None:
        """Check ids (B, T) and labels (B, T) of a batch, unless a batch was checked before."""
        if self.done or labels is None:
            return
        self.done = True
        target, labels = map(keras.ops.convert_to_numpy, (target, labels))
        tokens = target[target.any(axis=1)] if target.ndim == 2 else target[:0]
        if tokens.size and np.array_equal(target, labels):
            warnings.warn(
                f"labels: expected the tokens that follow those of {self.name}, got the same ids; "
                f"pass ids[:, :-1] as {self.name} and ids[:, 1:] as labels.",
                stacklevel=2,
            )
        elif tokens.size and self.has_start and (tokens[:, 0] != START_ID).any():
            row = tokens[tokens[:, 0] != START_ID][0]
            warnings.warn(
                f"{self.name}: expected rows that begin with the start token, {START_ID}, got "
                f"{row[0]}; put {START_ID} before the tokens of each target, and leave it out of "
                "the labels.",
                stacklevel=2,
            )


def checked(data: Any, ranges: tuple[IdRange, ...], target_check: TargetCheck | None = None) -> Any:
    """Return data with the same batches that raises an error for ids outside of their ranges.

    Args:
        data: a `tf.data.Dataset`, a `keras.utils.PyDataset`, a generator or a `DataLoader` of
            torch. Other data is returned as it is.
        ranges: the range of each input by name, and of "labels". The first range is that of a
            model's only input.
        target_check: warns of the first batch. Defaults to None: no warning.

    Returns:
        Data for `fit`, `evaluate` or `predict`. A step reports the error as `plain_errors` expects
        it.
    """
    if data in _checked:
        return data
    classes = {
        f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(data).__mro__
    }
    check = functools.partial(check_batch, ranges, target_check)
    result: Any = data
    if isinstance(data, keras.utils.PyDataset):
        result = _CheckedSequence(data, check)
    elif isinstance(data, types.GeneratorType):
        result = (check(batch) for batch in data)
    elif "tensorflow.DatasetV2" in classes:
        result = _checked_dataset(data, ranges, target_check)
    elif "torch.DataLoader" in classes:
        result = copy.copy(data)
        result.collate_fn = functools.partial(_collate, data.collate_fn, check)
    if result is not data:
        _checked.add(result)
    return result


def check_batch(ranges: tuple[IdRange, ...], target_check: TargetCheck | None, batch: Any) -> Any:
    """Check a batch of arrays, and return it.

    Raises:
        ValueError: if an id is outside of its range.
    """
    arrays = _named_arrays(ranges, batch)
    for id_range in ranges:
        if id_range.name in arrays:
            id_range.check(arrays[id_range.name])
    if target_check:
        target_check(arrays.get(target_check.name), arrays.get(LABELS_NAME))
    return batch


@contextlib.contextmanager
def plain_errors(model: keras.Model) -> Iterator[None]:
    """Raise the error about an id as a ValueError of one line, whatever the backend made of it.

    The model keeps its weights.
    """
    try:
        yield
    except Exception as error:
        if keras.backend.backend() == "jax":
            # Keras has moved the weights out of the model for a compiled step.
            model.jax_state_sync()
        message = _MESSAGE.search(str(error))
        if message is None or isinstance(error, ValueError):
            raise
        raise ValueError(message[0]) from None


class _CheckedSequence(keras.utils.PyDataset):
    """The batches of another sequence, each of which is checked."""

    def __init__(self, data: keras.utils.PyDataset, check: functools.partial[Any]) -> None:
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.data = data
        self.check = check

    @property
    def num_batches(self) -> int | None:
        return self.data.num_batches

    def __getitem__(self, index: int) -> Any:
        return self.check(self.data[index])

    def on_epoch_begin(self) -> None:
        self.data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.data.on_epoch_end()


def _collate(collate: Any, check: functools.partial[Any], rows: Any) -> Any:
    return check(collate(rows))


def _checked_dataset(
    dataset: Any, ranges: tuple[IdRange, ...], target_check: TargetCheck | None
) -> Any:
    import tensorflow as tf

    @tf.autograph.experimental.do_not_convert
    def check(index: Tensor, batch: Any) -> Any:
        arrays = {
            name: array
            for name, array in _named_arrays(ranges, batch).items()
            if isinstance(array, tf.Tensor) and (array.dtype.is_integer or array.dtype.is_floating)
        }
        for id_range in ranges:
            if id_range.name in arrays:
                _assert_range(id_range, tf.cast(arrays[id_range.name], tf.int64))
        if target_check and {target_check.name, LABELS_NAME} <= arrays.keys():
            ids = [arrays[target_check.name], arrays[LABELS_NAME]]
            tf.cond(
                tf.equal(index, 0),
                lambda: tf.numpy_function(target_check, ids, []),
                lambda: tf.no_op(),
            )
        return batch

    # Checks a batch while a step reads the one before.
    return dataset.enumerate().map(check).prefetch(1)


def _assert_range(id_range: IdRange, ids: Tensor) -> None:
    """Add an operation to a graph that fails for ids outside of a range, int64."""
    import tensorflow as tf

    lowest = tf.reduce_min(ids)
    highest = tf.reduce_max(ids)
    value = tf.strings.as_string(tf.where(lowest < 0, lowest, highest))
    before, after = id_range.message("\0").split("\0")
    in_range = tf.logical_and(lowest >= 0, highest < id_range.size)
    tf.debugging.Assert(in_range, [tf.strings.join([before, value, after])])


def _named_arrays(ranges: tuple[IdRange, ...], batch: Any) -> dict[str, Tensor]:
    """Return the arrays of a batch by name."""
    inputs, labels, _ = keras.utils.unpack_x_y_sample_weight(batch)
    arrays = dict(inputs) if isinstance(inputs, Mapping) else {ranges[0].name: inputs}
    return {n: array for n, array in {**arrays, LABELS_NAME: labels}.items() if array is not None}
