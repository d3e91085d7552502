"""Keras models with a configuration and named weights."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Self

import keras
import numpy as np

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import ModelOptions
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.keras_internals import all_layers, select_policies
from tfk_transformer.layers.position_encoding import Positions
from tfk_transformer.layers.relative_positions import RelativeOptions
from tfk_transformer.layers.vocabulary_projection import Embedding
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.checked_batches import (
    LABELS_NAME,
    IdRange,
    TargetCheck,
    checked,
    plain_errors,
)
from tfk_transformer.models.inputs import check_from_logits

CHECKED_ROWS = 256  # of the arrays of `fit`, by a `TargetCheck`
SPARSE_LOSSES = ("sparse_categorical_crossentropy", keras.losses.sparse_categorical_crossentropy)


class ConfiguredModel(keras.Model):
    """Base of the models that a configuration describes.

    All sizes are in the configuration, so `build()` needs no input shape. `summary`, `fit`,
    `load_weights` and `save_weights` build the model. `build()` does nothing if the model is built.

    Args:
        config: the configuration, of the class `config_type`.
        **kwargs: arguments of `keras.Model`, for instance `dtype="mixed_bfloat16"`.

    Raises:
        ValueError: if `config` is not of the class `config_type`.
    """

    config_type: type[ModelOptions]
    config: ModelOptions
    # The dtype of the inputs that Keras traces for `export` and `tf.saved_model.save`.
    input_dtype = "int32"

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Return a model whose `build` can be called again, and needs no input shape."""
        parameters = inspect.signature(cls.__init__).parameters
        if not args and "config" not in kwargs and "config" in parameters:
            _check_config(None, cls.config_type, f"only {', '.join(kwargs)}" if kwargs else "none")
        model = super().__new__(cls, *args, **kwargs)
        # Keras has wrapped the method of the class, to record the shapes that an export traces.
        model.build = _build_once(model, model.build)
        return model

    def __init__(self, config: ModelOptions, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_config(config, self.config_type)
        self.config = config

    def check_inputs(self, inputs: Tensor) -> None:
        """Check the names, shapes, types and known values of the inputs of a call.

        Args:
            inputs: the inputs that are passed to `call`.

        Raises:
            ValueError: names the argument, the expected and the received value.
        """
        raise NotImplementedError

    @property
    def id_ranges(self) -> tuple[IdRange, ...]:
        """The ids that each input, and the labels, may contain."""
        raise NotImplementedError

    @property
    def input_shapes(self) -> Any:
        """The shapes of the inputs of a call, (None, None) for ids."""
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
            logits = getattr(self.config, "output", "logits") == "logits"
            for name in ("loss", "metrics", "weighted_metrics"):
                check_from_logits(name, arguments.get(name), logits)
        super().compile(*args, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile a loaded model; see `keras.Model`."""
        if type(self).compile is not ConfiguredModel.compile:  # of a subclass
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
            arguments["x"] = self._checked(x, arguments.get("y"), self._target_check)
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

    @functools.wraps(keras.Model.export)
    def export(
        self,
        filepath: str,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Export the model, by default for ids of any shape; see `keras.Model`.

        Raises:
            ValueError: for an export without fixed shapes that PyTorch does not support.
        """
        if input_signature is None:
            shapes = self.input_shapes
            spec = functools.partial(keras.InputSpec, dtype=self.input_dtype)
            input_signature = (
                [{name: spec(shape=shape, name=name) for name, shape in shapes.items()}]
                if isinstance(shapes, Mapping)
                else [spec(shape=shapes)]
            )
        if keras.backend.backend() == "torch":
            _check_torch_export(format, input_signature)
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def _checked(self, x: Tensor, y: Tensor = None, target_check: TargetCheck | None = None) -> Any:
        """Check arrays, and return them; or return data whose batches are checked.

        Raises:
            ValueError: if the arrays are not inputs and labels of this model.
        """
        checks_labels = _reads_ids(getattr(self, "loss", None))
        ranges = tuple(r for r in self.id_ranges if checks_labels or r.name != LABELS_NAME)
        if not _is_arrays(x):
            if _is_batches(x):
                x = x.dataset() if keras.backend.backend() == "tensorflow" else x.sequence()
            return x if x is None else checked(x, ranges, target_check)
        self.check_inputs(x)
        for id_range in ranges:
            if id_range.name == LABELS_NAME:
                id_range.check(y)
        if target_check and y is not None:
            target = x[target_check.name] if isinstance(x, Mapping) else x
            target_check(target[:CHECKED_ROWS], y[:CHECKED_ROWS])
        return x

    @property
    def _target_check(self) -> TargetCheck | None:
        """The check of the first targets of `fit`. None for a model without targets."""
        *_, target, labels = self.id_ranges
        has_start = target.name == "target"
        return None if labels.classes else TargetCheck(target.name, has_start)

    def _build_in_scope(self) -> None:
        """Build the model where the strategy of `tf.distribute` that it was compiled with is."""
        if not self.built:
            strategy = getattr(self, "distribute_strategy", None)  # only with TensorFlow
            with strategy.scope() if strategy else contextlib.nullcontext():
                self.build()

    @property
    def enable_lora(self) -> NoReturn:
        """Raise an AttributeError that names the layers with LoRA."""
        raise AttributeError(
            f"enable_lora: expected a Dense or Embedding layer, got a {type(self).__name__}; call "
            "enable_lora of the embeddings, and of feed_forward.inner and feed_forward.outer in "
            "each layer."
        )

    @functools.wraps(keras.Model.load_weights)
    def load_weights(self, *args: Any, **kwargs: Any) -> None:
        """Build the model if needed, then load weights; see `keras.Model`."""
        self._build_in_scope()
        super().load_weights(*args, **kwargs)

    @functools.wraps(keras.Model.save_weights)
    def save_weights(self, *args: Any, **kwargs: Any) -> None:
        """Build the model if needed, then save weights; see `keras.Model`."""
        self._build_in_scope()
        super().save_weights(*args, **kwargs)

    @functools.wraps(keras.Model.summary)
    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Build the model if needed, then print its layers and parameters; see `keras.Model`."""
        self._build_in_scope()
        super().summary(*args, **kwargs)

    def _embedding(self, name: str, vocab_size: int, tied: bool = False) -> Embedding:
        # Embeddings have unit variance when positions are added. If tied, logits have unit variance
        # for normalized activations.
        scaled = self.config.scale_embeddings or tied
        stddev = self.config.model_dim**-0.5 if scaled else 1.0
        return Embedding(
            vocab_size,
            self.config.model_dim,
            keras.initializers.RandomNormal(stddev=stddev),
            dtype=self.dtype_policy,
            name=name,
        )

    def _positions(self, name: str, prefix: int = 0) -> Positions:
        c = self.config
        return Positions(
            c.positions,
            c.max_length,
            c.scale_embeddings,
            c.embedding_dropout_rate,
            offset=c.position_offset,
            prefix=prefix,
            norm=c.embedding_norm,
            epsilon=c.norm_epsilon,
            norm_type=c.norm_type,
            dtype=self.dtype_policy,
            name=name,
        )

    def _relative_options(self) -> RelativeOptions | None:
        """Return the options of a stack's relative positions, if the model has any."""
        c = self.config
        if not c.positions.startswith("relative"):
            return None
        by_layer = c.positions == "relative_by_layer"
        return RelativeOptions(c.position_buckets, c.position_max_distance, by_layer)

    @property
    def named_weights(self) -> dict[str, keras.Variable]:
        """The weights by name, a path below the model such as "encoder/layer_0/attention/query"."""
        return {weight.path.removeprefix(f"{self.path}/"): weight for weight in self.weights}

    @classmethod
    def from_weights(
        cls, mapping: Mapping[str, np.ndarray], config: ModelOptions, **kwargs: Any
    ) -> Self:
        """Make a model with given weights.

        Args:
            mapping: arrays by name. `named_weights` of a built model of this configuration has
                their names and shapes.
            config: the configuration.
            **kwargs: arguments of the model.

        Returns:
            A built model.

        Raises:
            ValueError: with every array that is missing, unexpected or of another shape.
        """
        model = cls(config, **kwargs)
        model.build()
        weights = model.named_weights
        expected = {name: tuple(weight.shape) for name, weight in weights.items()}
        actual = {name: np.shape(array) for name, array in mapping.items()}
        if problems := array_problems(expected, actual):
            raise ValueError(
                f"weights: expected the {len(weights)} arrays of this configuration, got {problems}"
            )
        for name, weight in weights.items():
            weight.assign(mapping[name])
        return model

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor, the configuration as a plain dictionary."""
        arguments = {**super().get_config(), "config": self.config.model_dump(mode="json")}
        differing = {  # of quantized layers, for instance
            layer.path: layer.dtype_policy
            for layer in all_layers(self)
            if layer.path and layer.dtype_policy.name != self.dtype_policy.name
        }
        if differing:
            policies = keras.dtype_policies.DTypePolicyMap(self.dtype_policy, differing)
            arguments["dtype"] = keras.dtype_policies.serialize(policies)
        return arguments

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, object] | None = None
    ) -> Self:
        """Make the model from the result of `get_config`."""
        arguments = {name: value for name, value in config.items() if name != "config"}
        return cls(cls.config_type(**config["config"]), **arguments)


def _check_torch_export(format: str, input_signature: Any) -> None:
    """Refuse what Keras exports with PyTorch only to fail later, or for one token only."""
    if format == "tf_saved_model" and isinstance(input_signature[0], Mapping):
        raise ValueError(
            'format: expected "onnx", "openvino" or "torch" for several inputs with PyTorch, got '
            '"tf_saved_model"; export with TensorFlow or JAX.'
        )
    shapes = [tuple(spec.shape) for spec in keras.tree.flatten(input_signature)]
    if format in ("onnx", "torch", "litert") and any(None in shape for shape in shapes):
        raise ValueError(
            f"input_signature: expected fixed shapes with PyTorch, got {shapes[0]}; pass for "
            'instance keras.InputSpec("int32", shape=(8, 32), name="source") for each input.'
        )


def _build_once(model: ConfiguredModel, build: Callable[[Any], None]) -> Callable[..., None]:
    @functools.wraps(build)
    def build_once(input_shape: object = None) -> None:
        if not model.built:
            build(model.input_shapes)
            select_policies(model)
            if keras.backend.backend() == "tensorflow":
                _name_listed_layers(model)

    return build_once


def _name_listed_layers(model: ConfiguredModel) -> None:
    """Make the layers in lists attributes as well: TensorFlow's checkpoints do not contain lists.

    The name of the list precedes these names, so `.keras` files still contain the list.
    """
    for layer in all_layers(model):
        for name, value in list(vars(layer).items()):
            if isinstance(value, list) and not name.startswith("_"):
                for index, item in enumerate(value):
                    if isinstance(item, keras.layers.Layer):
                        setattr(layer, f"{name}_{index}", item)


def _is_arrays(x: object) -> bool:
    """Return whether data is arrays: not a data set, a sequence or a generator."""
    return isinstance(x, Mapping | list | tuple) or hasattr(x, "shape")


def _is_batches(x: object) -> bool:
    """Return whether data is a `TokenBatches`, whose module imports models."""
    return hasattr(x, "dataset") and hasattr(x, "sequence")


def _epoch_order(batches: Any) -> keras.callbacks.Callback:
    """Return a callback that sets the epoch of the batches, which Keras reads now and then.

    It reads them to determine shapes, and begins with a later epoch to resume a training run.
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


def _check_config(config: object, config_type: type[ModelOptions], value: str = "") -> None:
    if isinstance(config, config_type):
        return
    name = config_type.__name__
    preset = config if isinstance(config, str) and config in PRESETS else "tiny"
    sizes = ", ".join(
        f"{field}=..." for field, info in config_type.model_fields.items() if info.is_required()
    )
    if not value:
        name_of_type = f"a value of type {type(config).__name__}"
        value = repr(config) if isinstance(config, str) else name_of_type
    raise ValueError(
        f'config: expected a {name}, got {value}; make one with {name}.preset("{preset}", {sizes}).'
    )


def array_problems(
    expected: Mapping[str, tuple[int, ...]],
    actual: Mapping[str, tuple[int, ...]],
    most: int | None = None,
) -> str:
    """Describe every array that is missing, unexpected or of another shape; "" without problems.

    Args:
        expected: the shapes of the weights by name.
        actual: the shapes of the arrays by name.
        most: the maximum number of described arrays; the others are counted. Defaults to None: all.
    """
    differing = [name for name, shape in expected.items() if actual.get(name) != shape]
    unexpected = [name for name in actual if name not in expected]
    names = [*differing, *unexpected]
    described = [_array_problem(name, expected, actual) for name in names[:most]]
    if len(described) < len(names):
        described.append(f"and {len(names) - len(described):,} more")
    return "; ".join(described)


def _array_problem(
    name: str,
    expected: Mapping[str, tuple[int, ...]],
    actual: Mapping[str, tuple[int, ...]],
) -> str:
    if name not in actual:
        return f"no '{name}' {expected[name]}"
    shape = shorten(str(actual[name]))
    if name in expected:
        return f"'{name}' of shape {shape} for {expected[name]}"
    return f"an unexpected '{shorten(name)}' {shape}.{nearest(name, expected)}"
