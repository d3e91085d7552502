"""Keras models that check what is passed to Keras's methods, to explain what does not fit.

Names, shapes and types are checked whenever a model is called or traced. Values are checked where
they are known, in arrays and eager tensors, and never inside a compiled function: the batches of a
data set are checked before a step reads them, see `checked_batches`.
"""

import contextlib
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.words import nearest
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.checked_batches import BatchCheck, IdRange, plain_errors

SPARSE_LOSSES = ("sparse_categorical_crossentropy", keras.losses.sparse_categorical_crossentropy)
# The remedy for a name of Hugging Face's models.
OTHER_NAMES = {
    "input_ids": "Its name here is 'source'",
    "attention_mask": "Its name here is 'source_mask'",
    "decoder_input_ids": "Its name here is 'target'",
    "labels": "Pass labels as y",
}


class CheckedModel(keras.Model):
    """A model whose calls, `compile`, `fit`, `evaluate` and `predict` check their arguments.

    They check names, ranks, types and numbers of rows of the inputs, and that all ids are within
    the vocabulary. `fit` and `evaluate` also check the labels of a loss that reads ids or classes.
    """

    config: Any
    has_loss_weights = False  # whether `compile` received weights of the losses

    def check_inputs(self, inputs: Tensor) -> None:
        """Check the names, shapes, types and known values of the inputs of a call."""
        ranges = self.id_ranges[:-1]  # without labels
        if len(ranges) == 1 and not isinstance(inputs, Mapping):
            inputs = {ranges[0].name: inputs}
        check_names(inputs, [id_range.name for id_range in ranges])
        for name, size, _ in ranges:
            check_ids(name, inputs[name], size)
        check_same_rows(inputs)

    @property
    def id_ranges(self) -> tuple[IdRange, ...]:
        """The ids that each input, and the labels, may contain."""
        raise NotImplementedError

    def __call__(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Check the inputs, then call the model; see `keras.Model`."""
        self.check_inputs(inputs)
        return super().__call__(inputs, *args, **kwargs)

    @functools.wraps(keras.Model.compute_output_spec)
    def compute_output_spec(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return the shape and the type of the output; see `keras.Model`."""
        # With PyTorch, Keras would call the model with 83 tokens, which may exceed `max_length`.
        spec = self._output_spec(inputs) if keras.backend.backend() == "torch" else None
        if spec is None or kwargs.get("with_output") or not self._has_library_call:
            return super().compute_output_spec(inputs, *args, **kwargs)
        return spec

    def _output_spec(self, inputs: Tensor) -> keras.KerasTensor | None:
        return None

    @property
    def _has_library_call(self) -> bool:
        """Whether the output is known: of a subclass with its own `call` it is not."""
        return type(self).call.__module__.startswith("tfk_transformer.")

    @functools.wraps(keras.Model.compile)
    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Check that loss and metrics fit the output of the model; see `keras.Model`."""
        if keras.backend.backend() == "jax" and self.activity_regularizer is not None:
            raise ValueError(
                "activity_regularizer: expected None for a model with JAX, where Keras leaves it "
                "out of the loss; call add_loss in a subclass."
            )
        arguments = inspect.signature(keras.Model.compile).bind(self, *args, **kwargs).arguments
        if self._has_library_call:
            logits = getattr(self.config, "returns_logits", True)
            for name in ("loss", "metrics", "weighted_metrics"):
                check_from_logits(name, arguments.get(name), logits)
        self.has_loss_weights = bool(arguments.get("loss_weights"))
        super().compile(*args, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile a loaded model; see `keras.Model`."""
        if type(self).compile is not CheckedModel.compile:  # of a subclass
            super().compile_from_config(config)  # Keras warns that it compiles nothing
            return
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    @functools.wraps(keras.Model.fit)
    def fit(self, x: Tensor = None, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Train on arrays, batches or other data, whose ids are checked; see `keras.Model`.

        A fit that starts with epoch 0 reads the next epochs of a `TokenBatches`; one that resumes
        with a later epoch, also by `BackupAndRestore`, reads the batches of that epoch.
        """
        signature = inspect.signature(keras.Model.fit)
        arguments = signature.bind(self, x, *args, **kwargs).arguments
        del arguments["self"]
        self._build_in_scope()
        if _is_batches(x):
            callbacks = keras.tree.flatten(arguments.get("callbacks") or [])
            arguments["callbacks"] = [_epoch_order(x), *callbacks]
            arguments["shuffle"] = False  # the batches are already shuffled
        elif not (_is_arrays(x) or isinstance(x, keras.utils.PyDataset)):
            arguments.setdefault("shuffle", False)  # Keras only warns that it shuffles no data set
        validation = arguments.get("validation_data")
        with plain_errors(self):
            arguments["x"] = self._checked(x, arguments.get("y"), warns=True)
            if isinstance(validation, tuple | list):
                self._checked(*validation[:2])
            elif validation is not None:
                arguments["validation_data"] = self._checked(validation)
            return super().fit(**arguments)

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, x: Tensor = None, y: Tensor = None, *args: Any, **kwargs: Any) -> Tensor:
        """Evaluate on arrays or data whose ids are checked; see `keras.Model`."""
        with plain_errors(self):
            return super().evaluate(self._checked(x, y), y, *args, **kwargs)

    @functools.wraps(keras.Model.predict)
    def predict(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Predict for arrays or data whose ids are checked; see `keras.Model`.

        Raises:
            ValueError: for a `TokenBatches`, whose batches differ in length.
        """
        if _is_batches(x):
            raise ValueError(
                f"x: expected arrays or a data set, got a {type(x).__name__}; "
                "batches.predict(model) yields the prediction for each pair, in their order."
            )
        with plain_errors(self):
            return super().predict(self._checked(x), *args, **kwargs)

    @functools.wraps(keras.Model.train_on_batch)
    def train_on_batch(self, x: Tensor, y: Tensor = None, *args: Any, **kwargs: Any) -> Tensor:
        """Check a batch, then train on it; see `keras.Model`."""
        return super().train_on_batch(self._checked(x, y), y, *args, **kwargs)

    @functools.wraps(keras.Model.test_on_batch)
    def test_on_batch(self, x: Tensor, y: Tensor = None, *args: Any, **kwargs: Any) -> Tensor:
        """Check a batch, then evaluate on it; see `keras.Model`."""
        return super().test_on_batch(self._checked(x, y), y, *args, **kwargs)

    @functools.wraps(keras.Model.predict_on_batch)
    def predict_on_batch(self, x: Tensor) -> Tensor:
        """Check a batch, then predict for it; see `keras.Model`."""
        return super().predict_on_batch(self._checked(x))

    def _checked(self, x: Tensor, y: Tensor = None, warns: bool = False) -> Any:
        """Check arrays, and return them; or return data whose batches are checked.

        If `warns`, the first targets cause a warning where a model cannot learn from them.
        """
        if x is None:
            return None
        *inputs, labels = self.id_ranges
        ranges = self.id_ranges if _reads_ids(getattr(self, "loss", None)) else inputs
        target = inputs[-1].name if warns and not labels.classes else None
        check = BatchCheck(ranges, target)
        if _is_arrays(x):
            self.check_inputs(x)
            check.arrays(x, y)
            return x
        if _is_batches(x):
            x = x.dataset() if keras.backend.backend() == "tensorflow" else x.sequence()
        return check.data(x)

    def _build_in_scope(self) -> None:
        """Build the model where the strategy of `tf.distribute` that it was compiled with is."""
        if not self.built:
            strategy = getattr(self, "distribute_strategy", None)  # only with TensorFlow
            with strategy.scope() if strategy else contextlib.nullcontext():
                self.build()


def _is_arrays(x: object) -> bool:
    """Return whether data is arrays: not a data set, a sequence or a generator."""
    return isinstance(x, Mapping | list | tuple) or hasattr(x, "shape")


def _is_batches(x: object) -> bool:
    """Return whether data is a `TokenBatches`, whose module imports models."""
    return hasattr(x, "dataset") and hasattr(x, "sequence")


def _epoch_order(batches: Any) -> keras.callbacks.Callback:
    """Return a callback that sets the epoch of the batches.

    Keras reads the batches to determine shapes too, and begins with a later epoch to resume a
    training run.
    """
    next_epoch = batches.epoch
    first: list[int] = []

    def begin(epoch: int, logs: object = None) -> None:
        first.append(epoch)
        batches.epoch = epoch + (next_epoch if first[0] == 0 else 0)

    return keras.callbacks.LambdaCallback(on_epoch_begin=begin)


def _reads_ids(loss: object) -> bool:
    """Return whether a loss fails for a label that is not an id of a token or class."""
    if isinstance(loss, keras.losses.SparseCategoricalCrossentropy):
        return loss.ignore_class is None
    return isinstance(loss, LabelSmoothedCrossentropy) or loss in SPARSE_LOSSES


def check_names(inputs: object, needed: Sequence[str]) -> None:
    """Check for missing and unknown names: a misspelt mask, for instance, would be ignored."""
    if not isinstance(inputs, Mapping):
        items = ", ".join(f'"{name}": ids' for name in needed)
        raise ValueError(
            f"inputs: expected a dictionary {{{items}}}, got {_describe(inputs)}; give each array "
            "its name."
        )
    names = (*needed, "source_mask")
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
        remedy = "encode texts with a tokenizer, for instance with tokenizer.graph_encode(texts)"
        if "float" in dtype or dtype == "bool":
            remedy = "convert them, for instance with ids.astype('int32')"
        raise ValueError(f"{name}: expected integer ids, got {dtype}; {remedy}.")
    IdRange(name, vocab_size).check(ids)


def _averaged_over_devices() -> bool:
    """Return whether Keras may have averaged ids over devices, to float64.

    Under a strategy of `tf.distribute`, `fit` builds a model with the mean of the devices' first
    batches (`TensorFlowTrainer._maybe_symbolic_build`), in the cross-replica context.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return bool(tf.distribute.in_cross_replica_context())


def check_same_rows(inputs: Mapping[str, Tensor]) -> None:
    """Check, as far as known, the rows of source and target, and the shape of the source's mask."""
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

    `functions` is the value of the `argument` of `compile`: a name, a function or an object, or a
    list or dictionary of these.
    """
    for function in keras.tree.flatten(functions):
        if _from_logits(argument, function) in (logits, None):
            continue
        name = function
        if not isinstance(function, str):
            name = getattr(function, "__name__", type(function).__name__)
        raise ValueError(
            f"{argument}: expected from_logits={logits} for a model that returns "
            f"{'logits' if logits else 'probabilities'}, got from_logits={not logits} of "
            f"{name}; pass {_class_name(argument, name)}(from_logits={logits})."
        )


def _class_name(argument: str, name: str) -> str:
    """Return the class of Keras for the name of a function, or the name itself."""
    if name in ("crossentropy", "ce"):
        name = "sparse_categorical_crossentropy"
    module = "losses" if argument == "loss" else "metrics"
    class_name = name.title().replace("_", "") if name.islower() else name
    return f"keras.{module}.{class_name}" if hasattr(getattr(keras, module), class_name) else name


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


def _describe(value: object) -> str:
    if isinstance(value, Mapping):
        return "a dictionary"
    name = type(value).__name__
    if isinstance(value, list | tuple):
        return f"a {name} of {len(value)}"
    return f"a value of type {name}"


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
