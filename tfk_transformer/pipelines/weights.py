"""The weights of a bundle: a safetensors file, which runs no code."""

import math
from collections import Counter
from pathlib import Path
from typing import TypeAlias

import numpy as np
import safetensors.numpy

from tfk_transformer.config.array_files import open_safetensors
from tfk_transformer.config.model_options import ModelOptions
from tfk_transformer.config.small_files import one_line_error
from tfk_transformer.config.words import shorten
from tfk_transformer.models.configured_model import ConfiguredModel, array_problems
from tfk_transformer.models.registry import ModelConfig
from tfk_transformer.models.reproduction import plain_weights
from tfk_transformer.pipelines.model_record import make_recorded
from tfk_transformer.runtime_environment import available_memory

WEIGHTS_FILE = "model.safetensors"

Shapes: TypeAlias = dict[str, tuple[int, ...]]
FLOAT32 = 4  # bytes
COPIES = 3  # of the weights in memory while they are read: file pages, initial and new values
MAX_POSITION_NUMBERS = 2**24  # position tables may have this size even in smaller models


def write_weights(model: ConfiguredModel, path: Path) -> None:
    """Write the plain weights of a model by name, in float32."""
    arrays = {
        name: np.ascontiguousarray(weight, "float32")
        for name, weight in plain_weights(model).items()
    }
    # `save_file` would not raise an OSError for a full disk.
    path.write_bytes(safetensors.numpy.save(arrays))


def read_weights(config: ModelConfig, path: Path) -> ConfiguredModel:
    """Return the float32 model of a bundle, given the path of the weights in its folder."""
    shapes = read_shapes(path)
    check_sizes(config, shapes, path)
    model = make_recorded(config, path.parent)
    expected = {name: tuple(weight.shape) for name, weight in model.named_weights.items()}
    if problems := array_problems(expected, shapes, most=8):
        raise ValueError(
            f"bundle: expected the weights of its configuration in {path}, got {problems}"
        )
    with safetensors.safe_open(path, framework="np") as file:
        for name, weight in model.named_weights.items():
            weight.assign(file.get_tensor(name))
    return model


def check_sizes(config: ModelConfig, shapes: Shapes, path: Path) -> None:
    """Refuse a configuration whose model is larger than the arrays in a file or the free memory."""
    available = sum(map(math.prod, shapes.values()))
    parts = sum((Counter(_part_sizes(member)) for member in config.members), Counter[str]())
    problems = [f"{name} would have {size:,}" for name, size in parts.items() if size > available]
    positions = sum(member.max_length * member.model_dim for member in config.members)
    layers = sum(map(_layers, config.members))
    if positions > max(available, MAX_POSITION_NUMBERS):
        problems.append(
            f"the positions of max_length {config.max_length:,} would have {positions:,} numbers"
        )
    if layers > len(shapes):
        problems.append(f"there are {layers:,} layers and {len(shapes):,} arrays")
    if problems:
        raise ValueError(
            f"bundle: the configuration does not fit {path}, which has {available:,} weights: "
            f"{'; '.join(problems)}."
        )
    # Positions are computed in float64, for source and target.
    needed = FLOAT32 * COPIES * (available + 4 * positions)
    if needed > (free := available_memory()):
        raise ValueError(
            f"bundle: expected enough memory for {available:,} weights and positions up to "
            f"max_length {config.max_length:,}, {needed / 1e9:.1f} GB, got {free / 1e9:.1f} GB "
            "free; end other programs or use a larger machine."
        )


def _layers(config: ModelOptions) -> int:
    return int(getattr(config, "encoder_layers", 0) + getattr(config, "decoder_layers", 0))


def _part_sizes(config: ModelOptions) -> dict[str, int]:
    """Return the number of weights of some parts of a model, which the model has at least."""
    width = config.model_dim
    tables = {
        name: getattr(config, name, 0)
        for name in ("source_vocab_size", "target_vocab_size", "vocab_size", "num_classes")
    }
    if config.has_learned_positions:
        tables["max_length"] = config.max_length
    projected = width // config.num_heads if config.shared_projections else width * config.num_heads
    ff_width = min(config.ff_width, getattr(config, "decoder_ff_dim", None) or config.ff_width)
    layer = {"feed-forward": width * ff_width}
    has_encoder = hasattr(config, "encoder_layers")
    if has_encoder or getattr(config, "decoder_mixer", None) == "attention":
        layer["query"] = projected * config.query_width
        layer["attention output"] = width * config.num_heads * config.value_width
    return {
        **{f"a table of {name} by model_dim": size * width for name, size in tables.items()},
        **{f"the {name} of all layers": _layers(config) * size for name, size in layer.items()},
    }


def read_shapes(path: Path) -> Shapes:
    """Return the shapes of the float32 arrays in the header, and check the size of the file."""
    with one_line_error(f"bundle: the weights in {path} do not load: "):
        _, slices = open_safetensors(path)
        for name, array in slices.items():
            if (dtype := array.get_dtype()) != "F32":
                raise ValueError(f"expected arrays of F32, got {dtype} for '{shorten(name)}'")
        return {name: tuple(array.get_shape()) for name, array in slices.items()}
