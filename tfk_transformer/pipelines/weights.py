"""The weights of a bundle: a safetensors file, which runs no code.

Sizes are compared with the file's own list of arrays, and with the memory there is, before a model
is made.
"""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import safetensors
import safetensors.numpy

from tfk_transformer.config.model_options import ModelOptions
from tfk_transformer.models.base import ConfiguredModel, array_problems
from tfk_transformer.models.registry import ModelConfig, make_model
from tfk_transformer.runtime_environment import available_memory

WEIGHTS_FILE = "model.safetensors"

Shapes: TypeAlias = dict[str, tuple[int, ...]]
FLOAT32 = 4  # bytes
# Of all weights in memory while they are read: the file's pages, the first values of the model, and
# the new ones.
COPIES = 3
MAX_POSITION_NUMBERS = (
    2**24
)  # numbers that a table of positions may have, even if the model has fewer weights


def write_weights(model: ConfiguredModel, path: Path) -> None:
    """Write the weights of a model by name, in float32."""
    arrays = {
        name: np.ascontiguousarray(weight, "float32")
        for name, weight in model.named_weights.items()
    }
    # Not `save_file`, whose error for a full disk is no OSError.
    path.write_bytes(safetensors.numpy.save(arrays))


def read_weights(config: ModelConfig, path: Path) -> ConfiguredModel:
    """Return the float32 model of a configuration with the weights of a file.

    Raises:
        ValueError: if the file is broken, is not of this configuration, or needs more memory than
            there is.
    """
    shapes = read_shapes(path)
    check_sizes(config, shapes, path)
    model: ConfiguredModel = make_model(config, dtype="float32")
    if problems := array_problems(
        {name: tuple(weight.shape) for name, weight in model.named_weights.items()}, shapes, most=8
    ):
        raise ValueError(
            f"bundle: expected the weights of its configuration in {path}, got {problems}"
        )
    with safetensors.safe_open(path, framework="np") as file:
        for name, weight in model.named_weights.items():
            weight.assign(file.get_tensor(name))
    return model


def check_sizes(config: ModelConfig, shapes: Shapes, path: Path) -> None:
    """Refuse a configuration whose model is larger than the weights that are there, or than the
    memory.

    Raises:
        ValueError: with the sizes that do not fit.
    """
    there = sum(map(math.prod, shapes.values()))
    parts = sum((Counter(_part_sizes(member)) for member in config.members), Counter[str]())
    problems = [f"{name} would have {wanted:,}" for name, wanted in parts.items() if wanted > there]
    positions = sum(member.max_length * member.model_dim for member in config.members)
    layers = sum(map(_layers, config.members))
    if positions > max(there, MAX_POSITION_NUMBERS):
        problems.append(
            f"the positions of max_length {config.max_length:,} would have {positions:,} numbers"
        )
    if layers > len(shapes):
        problems.append(f"there are {layers:,} layers and {len(shapes):,} arrays")
    if problems:
        raise ValueError(
            f"bundle: the configuration is not that of {path}, which has {there:,} weights: "
            f"{'; '.join(problems)}."
        )
    # Positions are computed in float64, for source and target.
    needed = FLOAT32 * COPIES * (there + 4 * positions)
    if needed > (free := available_memory()):
        raise ValueError(
            f"bundle: expected enough memory for {there:,} weights and positions up to max_length "
            f"{config.max_length:,}, "
            f"{needed / 1e9:.1f} GB, got {free / 1e9:.1f} GB free; end other programs or use a "
            "larger machine."
        )


def _layers(config: ModelOptions) -> int:
    return int(getattr(config, "encoder_layers", 0) + getattr(config, "decoder_layers", 0))


def _part_sizes(config: ModelOptions) -> dict[str, int]:
    """Return parts of the model that every configuration has, with their numbers of weights: each
    is at most the whole.
    """
    width = config.model_dim
    tables = {
        name: getattr(config, name, 0)
        for name in ("source_vocab_size", "target_vocab_size", "vocab_size", "num_classes")
    }
    if config.positions == "learned":
        tables["max_length"] = config.max_length
    projected = width // config.num_heads if config.shared_projections else width * config.num_heads
    layer = {
        "feed-forward": width * config.ff_width,
        "query": projected * config.query_width,
        "attention output": width * config.num_heads * config.value_width,
    }
    in_layers = {
        f"the {name} of all layers": _layers(config) * size for name, size in layer.items()
    }
    return {
        **{f"a table of {name} by model_dim": size * width for name, size in tables.items()},
        **in_layers,
    }


def read_shapes(path: Path) -> Shapes:
    """Return the shape of each array, from the header; the library compares it with the size of the
    file.

    Raises:
        ValueError: if the file is broken, or an array is not float32.
    """
    try:
        with safetensors.safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            _check_dtypes({name: found.get_dtype() for name, found in slices.items()})
            return {name: tuple(found.get_shape()) for name, found in slices.items()}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _check_dtypes(dtypes: Mapping[str, str]) -> None:
    if other := next(
        (f"{dtype} for {name!r}" for name, dtype in dtypes.items() if dtype != "F32"), None
    ):
        raise ValueError(f"expected arrays of F32, got {other}")


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"bundle: the weights in {path} do not load: "
        f"{(str(error).splitlines() or [type(error).__name__])[0][:300]}"
    )
