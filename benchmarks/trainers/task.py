"""The task of every engine: a model, how it is trained, and the batches."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

PAD_ID = 0
TASK, BATCHES = "task.json", "batches.npz"


class Sizes(NamedTuple):
    """A model: pre-norm layers, sinusoidal positions, one embedding for source, target and
    output.
    """

    model_dim: int
    ff_dim: int
    num_heads: int
    encoder_layers: int
    decoder_layers: int
    vocab_size: int


class Batch(NamedTuple):
    """Ids int32 (B, S), (B, T), (B, T), zeros behind, as `TokenBatches` has them."""

    source: np.ndarray  # tokens and end
    target: np.ndarray  # start and tokens
    labels: np.ndarray  # tokens and end


class Task(NamedTuple):
    """A model and what it is trained on."""

    sizes: Sizes
    batches: Sequence[Batch]
    dtype: str = "float32"  # or "bfloat16": products in bfloat16, weights in float32
    dropout: float = 0.1  # on embeddings and in residual connections, and nowhere else
    label_smoothing: float = 0.1
    learning_rate: float = 1e-4
    clip_norm: float = 1.0  # of all gradients together

    @property
    def max_length(self) -> int:
        """Return the length of the longest batch."""
        return max(max(batch.source.shape[1], batch.target.shape[1]) for batch in self.batches)


def write_task(task: Task, folder: Path) -> None:
    """Write what `read_task` reads."""
    folder.mkdir(parents=True)
    content = {**task._asdict(), "sizes": task.sizes._asdict()}
    del content["batches"]
    (folder / TASK).write_text(json.dumps(content))
    np.savez(
        folder / BATCHES,
        **{
            f"{i}/{name}": ids
            for i, b in enumerate(task.batches)
            for name, ids in b._asdict().items()
        },
    )


def read_task(folder) -> Task:
    """Return a task from its folder."""
    content = json.loads((Path(folder) / TASK).read_text())
    with np.load(Path(folder) / BATCHES) as arrays:
        count = len(arrays.files) // len(Batch._fields)
        batches = [Batch(*(arrays[f"{i}/{name}"] for name in Batch._fields)) for i in range(count)]
    return Task(**{**content, "sizes": Sizes(**content["sizes"]), "batches": batches})
