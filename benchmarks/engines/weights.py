"""A model's weights and configuration as plain files, for peers that run without Keras."""

import json
from pathlib import Path

import numpy as np

CONFIG, WEIGHTS = "config.json", "weights.npz"


def write_weights(model, folder: Path) -> None:
    """Write a `Transformer`: every array by its name, and the tables of positions beside them.

    Raises:
        ValueError: naming every option of the model that the peers here have no counterpart of.
    """
    config = model.config
    if problems := list(_unsupported(config)):
        raise ValueError(
            f"bundle: expected a model that the peers can hold, got one with {', '.join(problems)}."
        )
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(config.to_json())
    arrays = {name: np.asarray(weight) for name, weight in model.named_weights.items()}
    for name in ("source_positions", "target_positions"):
        arrays[f"{name}/table"] = np.asarray(getattr(model, name).table)
    np.savez(folder / WEIGHTS, **arrays)


def _unsupported(config):
    if config.architecture != "encoder_decoder":
        yield f"architecture '{config.architecture}'"
        return
    if {config.query_width, config.value_width} != {config.model_dim // config.num_heads}:
        yield "heads of another width than model_dim / num_heads"
    for name in ("keys_are_values", "shared_projections"):
        if getattr(config, name):
            yield name
    for name in ("encoder_final_norm", "decoder_final_norm"):
        if getattr(config, name) not in (None, config.norm == "pre"):
            yield f"{name} {getattr(config, name)} beside norm '{config.norm}'"


def read_weights(folder: Path) -> tuple[dict, dict[str, np.ndarray]]:
    """Return the configuration as JSON has it, and arrays by name."""
    with np.load(Path(folder) / WEIGHTS) as arrays:
        return json.loads((Path(folder) / CONFIG).read_text()), dict(arrays)
