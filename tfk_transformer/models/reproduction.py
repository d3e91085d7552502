"""Plain weights of a model, and a check that its class and arguments describe it."""

import functools
import inspect
import random
import sys
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from tfk_transformer.array_types import Tensor
from tfk_transformer.keras_internals import all_layers, never_initialize
from tfk_transformer.models.checked_batches import LABELS_NAME
from tfk_transformer.models.configured_model import ConfiguredModel, array_problems
from tfk_transformer.models.token_model import Beams, TokenModel

MAX_TOKENS = 23  # of a row of the inputs that are compared: farther than most relative positions
SEARCH_STEPS = 2
MAX_ERROR = 200  # characters
# The largest difference, relative to the largest output: the rounding of float32 and of 16 bits.
TOLERANCE, LOW_PRECISION_TOLERANCE = 1e-5, 1e-2
INT8 = "int8"
# The weight that LoRA changes and `quantize` replaces, by the class of the layer.
CHANGED = {keras.layers.Dense: "kernel", keras.layers.Embedding: "embeddings"}
CHANGED_TYPES: Any = tuple(CHANGED)


def changed_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Return the layers with LoRA, and the quantized layers."""
    return [
        layer
        for layer in all_layers(model)
        if isinstance(layer, CHANGED_TYPES) and (layer.quantization_mode or layer.lora_enabled)
    ]


def plain_weights(model: ConfiguredModel) -> dict[str, Tensor]:
    """Return the weights of a built model by name, with LoRA merged and int8 as float32.

    They are variables of the model, and arrays of the changed layers. The weights of layers in
    another mode of quantization are returned as they are.
    """
    weights: dict[str, Tensor] = dict(model.named_weights)
    for layer in changed_layers(model):
        role = next(role for base, role in CHANGED.items() if isinstance(layer, base))
        path = f"{layer.path}/{role}".removeprefix(f"{model.path}/")
        array = np.asarray(weights[path], "float32")
        if layer.quantization_mode == INT8:
            scale = np.asarray(weights.pop(f"{path}_scale"), "float32")
            array = array / (scale if role == "kernel" else scale[:, None])
        if layer.lora_enabled:
            down, up = (
                np.asarray(weights.pop(path.removesuffix(role) + f"lora_{role}_{part}"), "float32")
                for part in "ab"
            )
            array = array + layer.lora_alpha / layer.lora_rank * (down @ up)
        weights[path] = array
    return weights


def note_of_changes(model: ConfiguredModel) -> str | None:
    """Return a line about what `plain_weights` merges; None if it changes nothing."""
    layers = changed_layers(model)
    lora = sum(layer.lora_enabled for layer in layers)
    quantized = sum(layer.quantization_mode == INT8 for layer in layers)
    parts = [f"LoRA of {lora} layers is merged"] if lora else []
    parts += [f"int8 weights of {quantized} layers are converted to float32"] if quantized else []
    return " and ".join(parts) or None


def difference_from(
    model: ConfiguredModel,
    model_type: type[ConfiguredModel] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> str | None:
    """Describe the first difference between a model and the model that a class would make.

    The class makes another model, without memory for weights of its own, that is called with the
    weights of the first. Compared are the names and shapes of the weights, and for two short rows
    of ids the outputs of a call and of two decoding steps, without dropout.

    The class is by default the library's own. It makes the model from the `arguments` of its
    `from_config`, by default from the model's configuration, and with the model's dtype policy.
    The result continues the words "the model differs: "; it is None without a difference.
    """
    random_state = random.getstate()  # from which new layers draw their seeds
    try:
        return _difference(model, model_type or library_type(model), arguments)
    except Exception as error:  # of any type, from the code of a subclass
        return f"making and calling it again fails: {one_line(error)}"
    finally:
        random.setstate(random_state)


def one_line(error: Exception) -> str:
    """Return the type and the beginning of the message of an error."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_ERROR]}"


def library_type(model: ConfiguredModel) -> type[ConfiguredModel]:
    """Return the class of a model, or the library's own class that it is derived from."""
    return next(base for base in type(model).__mro__ if _is_of_library(base))


def _is_of_library(base: type) -> bool:
    return base.__module__.partition(".")[0] == __name__.partition(".")[0]


def _difference(
    model: ConfiguredModel, model_type: type[ConfiguredModel], arguments: Mapping[str, Any] | None
) -> str | None:
    model.build()
    inputs = _inputs(model)
    expected = _outputs(model, inputs)  # may make weights that `build` does not make
    policy = model.dtype_policy
    with keras.StatelessScope(initialize_variables=False):  # without memory for weights
        copy = (
            model_type(model.config, dtype=policy)
            if arguments is None
            else model_type.from_config({**arguments, "dtype": policy})
        )
        copy.build()
        shapes = _shapes(copy.named_weights)
        _change_layers(copy, model)
    never_initialize(copy)
    reason = _replaced_method(model) or _difference_of_weights(model, shapes)
    if reason is None:
        weights = model.named_weights
        state = [(weight, weights[name]) for name, weight in copy.named_weights.items()]
        with keras.StatelessScope(state, initialize_variables=False):
            outputs = _outputs(copy, inputs)
        never_initialize(copy)
        full = model.compute_dtype in ("float32", "float64")
        equal = functools.partial(_equal, TOLERANCE if full else LOW_PRECISION_TOLERANCE)
        reason = None if all(map(equal, expected, outputs)) else "its outputs differ"
    types = {type(layer) for layer in all_layers(copy)}
    foreign = {
        _path_below(model, layer): type(layer)
        for layer in all_layers(model)[1:]
        if type(layer) not in types
    }
    if reason and foreign:
        # An innermost layer of the program, if there is one: it may contain layers of Keras.
        path = max(foreign, key=lambda p: (foreign[p].__module__[:6] != "keras.", p.count("/")))
        return f"its layer '{path}' is a {foreign[path].__name__}, and {reason}"
    return reason


def _change_layers(copy: keras.Model, model: keras.Model) -> None:
    """Quantize the layers that are quantized in the model, and enable LoRA likewise."""
    layers = {_path_below(copy, layer): layer for layer in all_layers(copy)}
    for layer in changed_layers(model):
        other: Any = layers.get(_path_below(model, layer))
        if type(other) is type(layer):
            if layer.quantization_mode != other.quantization_mode:
                other.quantize(layer.quantization_mode)
            if layer.lora_enabled:
                other.enable_lora(layer.lora_rank, layer.lora_alpha)


def _difference_of_weights(
    model: ConfiguredModel, expected: dict[str, tuple[int, ...]]
) -> str | None:
    for layer in changed_layers(model):
        if layer.quantization_mode not in (None, INT8):
            path = _path_below(model, layer)
            return f"its layer '{path}' is quantized to {layer.quantization_mode}, not int8"
    if problems := array_problems(expected, _shapes(plain_weights(model)), most=3):
        return f"its weights differ: {problems}"
    if len(model.named_weights) < len(model.weights):
        return "several of its weights have the same name"
    return None


def _equal(tolerance: float, array: np.ndarray, other: np.ndarray) -> bool:
    largest = np.max(np.abs(array), where=np.isfinite(array), initial=0.0)
    return array.shape == other.shape and np.allclose(
        array, other, rtol=0.0, atol=tolerance * largest, equal_nan=True
    )


def _replaced_method(model: keras.Model) -> str | None:
    """Return which method of the library's classes is not of their module; the copy has it too."""
    types = dict.fromkeys(base for layer in all_layers(model) for base in type(layer).__mro__)
    for base in filter(_is_of_library, types):
        file = sys.modules[base.__module__].__file__
        for name, value in vars(base).items():
            # A decorated method has the file or the module.
            if inspect.isfunction(value) and value.__module__ != base.__module__:
                if value.__code__.co_filename != file:
                    return f"the program replaced the method {base.__name__}.{name}"
    return None


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def _path_below(model: keras.Model, layer: keras.layers.Layer) -> str:
    return str(layer.path or layer.name).removeprefix(f"{model.path}/")


def _inputs(model: ConfiguredModel) -> Tensor:
    """Return two rows of ids for each input of a call; the second ends with padding."""
    length = min(model.config.max_length, MAX_TOKENS)
    inputs = {}
    for id_range in model.id_ranges:
        if id_range.name != LABELS_NAME:
            ids = np.arange(1, 2 * length + 1, dtype="int32").reshape(2, length)
            ids = ids * 7 % id_range.size
            ids[1, (length + 1) // 2 :] = 0
            inputs[id_range.name] = ids
    return inputs if isinstance(model.input_shapes, Mapping) else next(iter(inputs.values()))


def _outputs(model: ConfiguredModel, inputs: Tensor) -> list[np.ndarray]:
    """Return the outputs of a call and of the first decoding steps, float32."""
    outputs = [model(inputs, training=False)]
    if isinstance(model, TokenModel):
        both = inputs if isinstance(inputs, dict) else {"source": inputs, "target": inputs}
        step, first_cache, memory = model.start_search(both["source"])
        cache = first_cache(len(both["source"]))
        for position in range(min(SEARCH_STEPS, model.config.max_length)):
            ids = keras.ops.convert_to_tensor(both["target"][:, None, : position + 1])
            logits, cache, attention = step(
                Beams(ids, ids[:, :, -1], position, None), cache, memory
            )
            outputs += [logits, attention]
    return [
        np.asarray(keras.ops.convert_to_numpy(array), "float32")
        for array in keras.tree.flatten(outputs)
        if array is not None
    ]
