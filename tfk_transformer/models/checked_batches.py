"""Checks of the ids in data for `fit`, `evaluate` and `predict`, before a step reads a batch.

Compiled functions cannot refuse an id: XLA replaces one outside the vocabulary by another id, JAX
computes NaN, and TensorFlow's error names an operation of the graph.
"""

import contextlib
import copy
import functools
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from tfk_transformer.array_types import Tensor, value_outside
from tfk_transformer.constants import START_ID

LABELS_NAME = "labels"
CHECKED_ROWS = 256  # of the arrays of `fit`, for a warning

_checked: "weakref.WeakSet[Any]" = weakref.WeakSet()  # data whose batches are already checked


class IdRange(NamedTuple):
    """The ids that an array may contain: from 0 to `size` - 1."""

    name: str  # of the argument, for the error message
    size: int
    classes: bool = False  # whether the ids are classes instead of tokens

    def check(self, ids: Tensor) -> None:
        """Check the values of ids, where they are known."""
        if (value := value_outside(ids, self.size)) is not None:
            raise ValueError(str(value).join(self.message))

    @property
    def message(self) -> tuple[str, str]:
        """The error message, before and after a value outside the range."""
        reason = (
            f"the classes of the configuration are {self.size}"
            if self.classes
            else f"the vocabulary of the configuration has {self.size} tokens, and padding is 0"
        )
        return f"{self.name}: expected ids from 0 to {self.size - 1}, got ", f"; {reason}."


class BatchCheck:
    """Check the ids of a model's inputs and labels.

    Args:
        ranges: the range of each input by name, and of "labels". The first range is that of a
            model's only input.
        target: the name of the input whose first batch in `fit` is checked: a warning says why a
            model cannot learn to translate from it. None: no warning.
    """

    def __init__(self, ranges: Sequence[IdRange], target: str | None = None) -> None:
        self.ranges = ranges
        self.target = target

    def __call__(self, batch: Any) -> Any:
        """Check a batch of arrays, and return it."""
        arrays = self._named_arrays(batch)
        for id_range in self.ranges:
            if id_range.name in arrays:
                id_range.check(arrays[id_range.name])
        if self.target:
            self.warn(arrays.get(self.target), arrays.get(LABELS_NAME))
        return batch

    def arrays(self, x: Tensor, y: Tensor) -> None:
        """Check the labels y, and the first rows of arrays for a warning."""
        for id_range in self.ranges:
            if id_range.name == LABELS_NAME:
                id_range.check(y)
        if self.target and y is not None:
            target = x[self.target] if isinstance(x, Mapping) else x
            self.warn(target[:CHECKED_ROWS], y[:CHECKED_ROWS])

    def data(self, data: Any) -> Any:
        """Return data with each batch checked; data of other types is returned as it is."""
        if data in _checked:
            return data
        classes = {
            f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(data).__mro__
        }
        result: Any = data
        if isinstance(data, keras.utils.PyDataset):
            result = _CheckedSequence(data, self)
        elif isinstance(data, types.GeneratorType):
            result = (self(batch) for batch in data)
        elif "tensorflow.DatasetV2" in classes:
            result = self._dataset(data)
        elif "torch.DataLoader" in classes:
            result = copy.copy(data)
            result.collate_fn = functools.partial(_collate, data.collate_fn, self)
        if result is not data:
            _checked.add(result)
        return result

    def warn(self, target: Tensor, labels: Tensor) -> None:
        """Warn of ids (B, T) and labels (B, T) of a batch, unless a batch was checked before."""
        if labels is None or self.target is None:
            return
        name, self.target = self.target, None
        target, labels = map(keras.ops.convert_to_numpy, (target, labels))
        tokens = target[target.any(axis=1)] if target.ndim == 2 else target[:0]
        if tokens.size and np.array_equal(target, labels):
            warnings.warn(
                f"labels: expected the tokens that follow those of {name}, got the same ids; "
                f"pass ids[:, :-1] as {name} and ids[:, 1:] as labels.",
                stacklevel=2,
            )
        elif tokens.size and name == "target" and (tokens[:, 0] != START_ID).any():
            row = tokens[tokens[:, 0] != START_ID][0]
            warnings.warn(
                f"{name}: expected rows that begin with the start token, {START_ID}, got "
                f"{row[0]}; put {START_ID} before the tokens of each target, and leave it out of "
                "the labels.",
                stacklevel=2,
            )

    def _named_arrays(self, batch: Any) -> dict[str, Tensor]:
        inputs, labels, _ = keras.utils.unpack_x_y_sample_weight(batch)
        arrays = dict(inputs) if isinstance(inputs, Mapping) else {self.ranges[0].name: inputs}
        return {n: a for n, a in {**arrays, LABELS_NAME: labels}.items() if a is not None}

    def _dataset(self, dataset: Any) -> Any:
        import tensorflow as tf

        @tf.autograph.experimental.do_not_convert
        def check(index: Tensor, batch: Any) -> Any:
            arrays = {
                name: array
                for name, array in self._named_arrays(batch).items()
                if isinstance(array, tf.Tensor)
                and (array.dtype.is_integer or array.dtype.is_floating)
            }
            for id_range in self.ranges:
                if id_range.name in arrays:
                    ids = tf.cast(arrays[id_range.name], tf.int64)
                    lowest = tf.reduce_min(ids)
                    highest = tf.reduce_max(ids)
                    value = tf.strings.as_string(tf.where(lowest < 0, lowest, highest))
                    before, after = id_range.message
                    in_range = tf.logical_and(lowest >= 0, highest < id_range.size)
                    tf.debugging.Assert(in_range, [tf.strings.join([before, value, after])])
            if self.target and {self.target, LABELS_NAME} <= arrays.keys():
                first = [arrays[self.target], arrays[LABELS_NAME]]
                tf.cond(
                    tf.equal(index, 0),
                    lambda: tf.numpy_function(self.warn, first, []),
                    lambda: tf.no_op(),
                )
            return batch

        # Checks a batch while a step reads the one before.
        return dataset.enumerate().map(check).prefetch(1)


@contextlib.contextmanager
def plain_errors(model: Any) -> Iterator[None]:
    """Raise the error about an id as a ValueError of one line; the model keeps its weights."""
    try:
        yield
    except Exception as error:
        if keras.backend.backend() == "jax":
            # Keras has moved the weights out of the model for a compiled step.
            model.jax_state_sync()
        if isinstance(error, ValueError):
            raise
        # TensorFlow passes on only the text of an error in a data pipeline or a worker process.
        for before, after in (id_range.message for id_range in model.id_ranges):
            rest = str(error).partition(before)[2]
            if after in rest:
                raise ValueError(before + rest.partition(after)[0] + after) from None
        raise


class _CheckedSequence(keras.utils.PyDataset):
    """The batches of another sequence, each of which is checked."""

    def __init__(self, data: keras.utils.PyDataset, check: BatchCheck) -> None:
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


def _collate(collate: Callable[[Any], Any], check: BatchCheck, rows: Any) -> Any:
    return check(collate(rows))  # not a lambda, which worker processes could not receive
