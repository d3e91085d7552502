"""Keras models with a configuration and named weights."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self

import keras
import numpy as np

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import ModelOptions
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.layers.position_encoding import Positions
from tfk_transformer.layers.relative_positions import RelativeOptions
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.checked_batches import LABELS_NAME, IdRange, checked, plain_errors

SPARSE_LOSSES = ("sparse_categorical_crossentropy", keras.losses.sparse_categorical_crossentropy)


class ConfiguredModel(keras.Model):
    """Base of the models that a configuration describes.

    All sizes are in the configuration, so `build()` needs no input shape, and `summary()` builds
    the model. `build()` does nothing if the model is built.

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

    @functools.wraps(keras.Model.fit)
    def fit(self, x: Tensor = None, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Train on arrays or data whose ids are checked; see `keras.Model`."""
        signature = inspect.signature(keras.Model.fit)
        arguments = signature.bind(self, x, *args, **kwargs).arguments
        del arguments["self"]
        validation = arguments.get("validation_data")
        with plain_errors(self):
            arguments["x"] = self._checked(x, arguments.get("y"))
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
        """Predict for arrays or data whose ids are checked; see `keras.Model`."""
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
        """Export the model, by default for ids of any shape; see `keras.Model`."""
        if input_signature is None:
            shapes = self.input_shapes
            spec = functools.partial(keras.InputSpec, dtype=self.input_dtype)
            input_signature = (
                [{name: spec(shape=shape, name=name) for name, shape in shapes.items()}]
                if isinstance(shapes, Mapping)
                else [spec(shape=shapes)]
            )
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def _checked(self, x: Tensor, y: Tensor = None) -> Any:
        """Check arrays, and return them; or return data whose batches are checked.

        Raises:
            ValueError: if the arrays are not inputs and labels of this model, or `x` is a
                `TokenBatches`.
        """
        if hasattr(x, "dataset") and hasattr(x, "sequence"):
            raise ValueError(
                f"x: expected arrays or a data set, got a {type(x).__name__}; pass "
                "batches.dataset(), or batches.sequence() under a backend without TensorFlow, "
                "with shuffle=False."
            )
        checks_labels = _reads_ids(getattr(self, "loss", None))
        ranges = tuple(r for r in self.id_ranges if checks_labels or r.name != LABELS_NAME)
        # Otherwise, a data set, a sequence or a generator.
        if isinstance(x, Mapping | list | tuple) or hasattr(x, "shape"):
            self.check_inputs(x)
            for id_range in ranges:
                if id_range.name == LABELS_NAME:
                    id_range.check(y)
            return x
        return x if x is None else checked(x, ranges)

    @functools.wraps(keras.Model.summary)
    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Build the model if needed, then print its layers and parameters; see `keras.Model`."""
        if not self.built:
            self.build()
        super().summary(*args, **kwargs)

    def _embedding(self, name: str, vocab_size: int, tied: bool = False) -> keras.layers.Embedding:
        # Embeddings have unit variance when positions are added. If tied, logits have unit variance
        # for normalized activations.
        scaled = self.config.scale_embeddings or tied
        stddev = self.config.model_dim**-0.5 if scaled else 1.0
        return keras.layers.Embedding(
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
        return {**super().get_config(), "config": self.config.model_dump(mode="json")}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, object] | None = None
    ) -> Self:
        """Make the model from the result of `get_config`."""
        arguments = {name: value for name, value in config.items() if name != "config"}
        return cls(cls.config_type(**config["config"]), **arguments)


def _build_once(model: ConfiguredModel, build: Callable[[Any], None]) -> Callable[..., None]:
    @functools.wraps(build)
    def build_once(input_shape: object = None) -> None:
        if not model.built:
            build(model.input_shapes)

    return build_once


def _reads_ids(loss: object) -> bool:
    """Return whether a loss fails for a label that is not an id of a token or class."""
    if isinstance(loss, keras.losses.SparseCategoricalCrossentropy):
        return loss.ignore_class is None
    return isinstance(loss, LabelSmoothedCrossentropy) or loss in SPARSE_LOSSES


def _check_config(config: object, config_type: type[ModelOptions]) -> None:
    if isinstance(config, config_type):
        return
    name = config_type.__name__
    preset = config if isinstance(config, str) and config in PRESETS else "tiny"
    sizes = ", ".join(
        f"{field}=..." for field, info in config_type.model_fields.items() if info.is_required()
    )
    value = repr(config) if isinstance(config, str) else f"a value of type {type(config).__name__}"
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
