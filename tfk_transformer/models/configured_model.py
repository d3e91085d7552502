"""Keras models with a configuration and named weights."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any, NoReturn, Self

import keras
import numpy as np

from tfk_transformer.config.model_options import ModelOptions
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.keras_internals import all_layers, select_policies
from tfk_transformer.layers.encoder import Encoder
from tfk_transformer.layers.positions import Positions
from tfk_transformer.layers.vocabulary_projection import Embedding
from tfk_transformer.models.checked_batches import LABELS_NAME
from tfk_transformer.models.checked_model import CheckedModel

# The layers of a model that it has, in the order in which their weights are made.
LAYERS = (
    "source_embedding",
    "target_embedding",
    "source_positions",
    "target_positions",
    "encoder",
    "decoder",
    "projection",
)


class ConfiguredModel(CheckedModel):
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
    encoder_type = Encoder
    # The dtype of the inputs that Keras traces for `export` and `tf.saved_model.save`.
    input_dtype = "int32"

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Return a model whose `build` can be called again, and needs no input shape."""
        parameters = inspect.signature(cls.__init__).parameters
        if not args and "config" not in kwargs and "config" in parameters:
            _check_config(None, cls.config_type, f"only {', '.join(kwargs)}" if kwargs else "none")
        model = super().__new__(cls, *args, **kwargs)
        # Keras has wrapped the method of the class, to record the shapes that an export traces.
        build = model.build

        @functools.wraps(build)
        def build_once(input_shape: object = None) -> None:
            if not model.built:
                build(model.input_shapes)
                select_policies(model)
                if keras.backend.backend() == "tensorflow":
                    _name_listed_layers(model)

        model.build = build_once
        return model

    def __init__(self, config: ModelOptions, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_config(config, self.config_type)
        self.config = config

    @property
    def input_shapes(self) -> Any:
        """The shapes of the inputs of a call by name, or of its only input: (None, None)."""
        names = [id_range.name for id_range in self.id_ranges if id_range.name != LABELS_NAME]
        return (None, None) if len(names) == 1 else dict.fromkeys(names, (None, None))

    def build(self, input_shape: object = None) -> None:
        """Make all weights. Their shapes follow from the configuration."""
        for name in LAYERS:
            layer = getattr(self, name, None)
            if isinstance(layer, keras.layers.Embedding):
                if not layer.built:  # of the source, which may also be that of the target
                    layer.build((None, None))
            elif layer is not None:
                layer.build((None, None, self.config.model_dim))

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
            if format == "tf_saved_model" and isinstance(input_signature[0], Mapping):
                raise ValueError(
                    'format: expected "onnx", "openvino" or "torch" for several inputs with '
                    'PyTorch, got "tf_saved_model"; export with TensorFlow or JAX.'
                )
            shapes = [tuple(spec.shape) for spec in keras.tree.flatten(input_signature)]
            # Keras would export for one token only.
            if format in ("onnx", "torch", "litert") and any(None in shape for shape in shapes):
                raise ValueError(
                    f"input_signature: expected fixed shapes with PyTorch, got {shapes[0]}; pass "
                    'for instance keras.InputSpec("int32", shape=(8, 32), name="source") for each '
                    "input."
                )
        super().export(filepath, format, verbose, input_signature, **kwargs)

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

    def _add_encoder(self, vocab_size: int, tied: bool = False, prefix: int = 0) -> None:
        """Make the layers that read a source; see `_embedding` and `_positions`."""
        c: Any = self.config
        self.source_embedding = self._embedding("source_embedding", vocab_size, tied)
        self.source_positions = self._positions("source_positions", prefix)
        self.encoder = self.encoder_type(
            c,
            c.encoder_layers,
            c.encoder_final_norm,
            c.relative_positions,
            dtype=self.dtype_policy,
            name="encoder",
        )

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
    """Describe every array that is missing, unexpected or of another shape.

    Of more than `most` problems, the others are counted.
    """
    problems = []
    for name, shape in expected.items():
        if name not in actual:
            problems.append(f"no '{name}' {shape}")
        elif actual[name] != shape:
            problems.append(f"'{name}' of shape {shorten(str(actual[name]))} for {shape}")
    for name, shape in actual.items():
        if name not in expected:
            hint = nearest(name, expected) if most is None or len(problems) < most else ""
            problems.append(f"an unexpected '{shorten(name)}' {shorten(str(shape))}.{hint}")
    if most is not None and len(problems) > most:
        problems[most:] = [f"and {len(problems) - most:,} more"]
    return "; ".join(problems)
