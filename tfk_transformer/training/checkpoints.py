"""The state of a training in files, from which it goes on exactly where it was."""

import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tfk_transformer.atomic_write import written_whole

STATE, SNAPSHOT = "state.npz", "weights-{epoch:05d}.npz"
ABOUT = "about"


class Checkpoints:
    """The checkpoint of a training, and the weights of the epochs that are to be averaged.

    Each is one file, put in place in one move: a process that is killed leaves the old one or the new one.

    Args:
        folder: of the training; made at the first save.
    """

    def __init__(self, folder):
        self.folder = Path(folder)

    @property
    def exists(self) -> bool:
        """Whether there is a state to go on from."""
        return (self.folder / STATE).is_file()

    def save(self, model, about: dict) -> None:
        """Write all that the next step depends on.

        Args:
            model: a compiled model.
            about: more, that turns to JSON.

        Raises:
            ValueError: if there is no space left; the earlier state stays.
        """
        _write(self.folder / STATE, {**_numbered(_variables(model)), ABOUT: np.array(json.dumps(about))})

    def restore(self, model) -> dict:
        """Take a model, compiled and its optimizer built as it was, to the saved state; return what `save` was told about it.

        Raises:
            ValueError: if the state is of another model.
        """
        with np.load(self.folder / STATE) as arrays:
            variables = list(_variables(model))
            fits = len(arrays.files) == len(variables) + 1
            if not fits or any(arrays[str(i)].shape != tuple(v.shape) for i, v in enumerate(variables)):
                raise ValueError(f"resume: expected the state of this model in {self.folder / STATE}, got that of another.")
            for i, variable in enumerate(variables):
                variable.assign(arrays[str(i)])
            return json.loads(str(arrays[ABOUT]))

    def keep(self, model, epoch: int, wanted: list[int]) -> None:
        """Keep the weights of an epoch, and of earlier ones those in `wanted` alone."""
        if epoch in wanted:
            _write(self._snapshot(epoch), _numbered(model.weights))
        for path in self.folder.glob(SNAPSHOT.replace("{epoch:05d}", "*")):
            if path not in map(self._snapshot, wanted):
                path.unlink()

    def mean(self, epochs: list[int]) -> list[np.ndarray]:
        """Return the mean of the weights of some epochs, float32, in the model's order."""
        totals = None
        for epoch in epochs:
            with np.load(self._snapshot(epoch)) as arrays:
                weights = [arrays[str(i)].astype(np.float64) for i in range(len(arrays.files))]
            totals = weights if totals is None else [total + weight for total, weight in zip(totals, weights, strict=True)]
        return [(total / len(epochs)).astype(np.float32) for total in totals]

    def clean(self) -> None:
        """Remove what a killed process left half written."""
        for leftover in self.folder.glob(".*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _snapshot(self, epoch: int) -> Path:
        return self.folder / SNAPSHOT.format(epoch=epoch)


def no_space(error: OSError, what: str) -> ValueError:
    """Return the error for a full disk, in the user's words; another error of the system is raised as it is."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    return ValueError(f"{what}: no space left on the disk; what was saved before is as it was. Free some, and --resume.")


def _variables(model) -> Iterator:
    """Yield everything that goes from one epoch to the next: weights, random states, moments and counters."""
    yield from model.variables
    yield from model.optimizer.variables


def _numbered(variables) -> dict:
    return {str(i): np.asarray(variable) for i, variable in enumerate(variables)}


def _write(path: Path, arrays: dict) -> None:
    try:
        with written_whole(path) as new:
            np.savez(new, **arrays)
    except OSError as error:
        raise no_space(error, f"checkpoint {path}") from None
