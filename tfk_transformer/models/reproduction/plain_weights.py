"""The weights of a model without LoRA and quantization, as `build` makes them."""

from typing import Any

import keras
import numpy as np

from tfk_transformer.array_types import Tensor
from tfk_transformer.keras_internals import all_layers
from tfk_transformer.models.configured_model import ConfiguredModel

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
    """Return the weights by name, with LoRA merged and int8 as float32.

    Args:
        model: a built model.

    Returns:
        Variables of the model, and arrays of the changed layers. The weights of layers in another
        mode of quantization are returned as they are.
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
