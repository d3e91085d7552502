"""The folder of an unfinished training run: its recipe, vocabularies and checkpoints, from which it
is resumed exactly.
"""

import errno
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict

import keras
import numpy as np

from tfk_transformer.array_types import Tensor
from tfk_transformer.atomic_write import written_whole
from tfk_transformer.pipelines.bundle import RECIPE
from tfk_transformer.training.history import Row
from tfk_transformer.training.recipe import Recipe

STATE, SNAPSHOT = "state.npz", "weights-{epoch:05d}.npz"
ABOUT = "about"


class About(TypedDict):
    """The values that a checkpoint records besides the variables."""

    rows: list[Row]  # of the history
    seconds: float  # of training so far


class Checkpoints:
    """The checkpoint of a training run, and the weights of the epochs that are to be averaged.

    Each file is replaced in one step: if the process is killed, either the old or the new file is
    there.

    Args:
        folder: the folder of the unfinished training run; created by the first save.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint."""
        return (self.folder / STATE).is_file()

    def save(self, model: keras.Model, about: About) -> None:
        """Write everything that the next training step depends on.

        Args:
            model: a compiled model.
            about: the history and the training time.

        Raises:
            ValueError: if there is no space left on the disk; the earlier checkpoint stays.
        """
        _write(
            self.folder / STATE,
            {**_numbered(_variables(model)), ABOUT: np.array(json.dumps(about))},
        )

    def restore(self, model: keras.Model) -> About:
        """Restore the saved state of a model that is compiled and whose optimizer is built; return
        `about` as `save` got it.

        Raises:
            ValueError: if the checkpoint is of another model.
        """
        variables, path = list(_variables(model)), self.folder / STATE
        values, about = _read_state(path)
        if len(values) != len(variables) or any(
            value.shape != tuple(v.shape) for value, v in zip(values, variables, strict=True)
        ):
            raise ValueError(
                f"resume: expected the state of this model in {path}, got that of another."
            )
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return about

    def keep(self, model: keras.Model, epoch: int, wanted: list[int]) -> None:
        """Save the weights of an epoch if it is in `wanted`, and delete the weights of all epochs
        that are not.
        """
        if epoch in wanted:
            _write(self._snapshot(epoch), _numbered(model.weights))
        for path in self.folder.glob(SNAPSHOT.replace("{epoch:05d}", "*")):
            if path not in map(self._snapshot, wanted):
                path.unlink()

    def mean(self, epochs: list[int]) -> list[np.ndarray]:
        """Return the mean of the weights of at least one epoch, float32, in the model's order."""
        totals: list[np.ndarray] = []
        for epoch in epochs:
            with np.load(self._snapshot(epoch)) as arrays:
                weights = [arrays[str(i)].astype(np.float64) for i in range(len(arrays.files))]
            totals = (
                [total + weight for total, weight in zip(totals, weights, strict=True)]
                if totals
                else weights
            )
        return [(total / len(epochs)).astype(np.float32) for total in totals]

    def clean(self) -> None:
        """Delete unfinished files that a killed process left."""
        for leftover in self.folder.glob(".*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _snapshot(self, epoch: int) -> Path:
        return self.folder / SNAPSHOT.format(epoch=epoch)


def work_folder_of(out: Path) -> Path:
    """Return the path of the folder of the unfinished training run for the bundle `out`."""
    return out.with_name(out.name + ".training")


def checked_work_folder(recipe: Recipe, out: Path, resume: bool) -> Path:
    """Return the path of the folder of the unfinished training run, after checking that no work
    would be lost.

    Raises:
        ValueError: if there is nothing to resume, or the recipe differs, or earlier work is in the
            way of a new training run.
    """
    work = work_folder_of(out)
    if resume:
        if not (work / RECIPE).is_file():
            raise ValueError(
                f"resume: expected an unfinished training in {work}, got none; leave resume out "
                "to start one."
            )
        _check_same(Recipe.read(work / RECIPE), recipe, work)
    elif work.exists():
        raise ValueError(
            f"out: {work} holds an unfinished training; resume it, or remove it to start anew."
        )
    elif out.exists():
        raise ValueError(
            f"out: expected a new folder, got {out}, which exists; choose another name or remove "
            "it."
        )
    return work


def _check_same(earlier: Recipe, recipe: Recipe, work: Path) -> None:
    """Refuse to continue with another recipe; only the training time may differ, if the schedule
    does not depend on it.
    """
    free = {"minutes", "patience", "tensorboard", "profile"} | (
        {"epochs"} if recipe.schedule != "cosine" else set()
    )
    changed = [
        name
        for name in Recipe.model_fields
        if name not in free and getattr(earlier, name) != getattr(recipe, name)
    ]
    if changed:
        was = ", ".join(f"{name}={getattr(earlier, name)!r}" for name in changed)
        raise ValueError(
            f"resume: expected the recipe that {work} was started with, which had {was}."
        )


def no_space(error: OSError, what: str) -> ValueError:
    """Return the error for a full disk; any other system error is raised again."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    return ValueError(
        f"{what}: no space left on the disk; what was saved before is as it was. Free some, and "
        "--resume."
    )


def _variables(model: keras.Model) -> Iterator[keras.Variable]:
    """Yield everything that is carried from one epoch to the next: weights, random states, moments
    and counters.
    """
    yield from model.variables
    yield from model.optimizer.variables


def _read_state(path: Path) -> tuple[list[np.ndarray], About]:
    """Return the arrays of a checkpoint and its other values.

    Raises:
        ValueError: if the file is broken.
    """
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("expected an .npz archive, got a file that breaks off or is none")
        with np.load(path) as arrays:
            about: About = json.loads(str(arrays[ABOUT]))
            return [arrays[str(i)] for i in range(len(arrays.files) - 1)], about
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        KeyError,
        ValueError,
        RecursionError,
    ) as error:
        raise ValueError(
            f"resume: the state in {path} does not load: {error}; remove it to start anew."
        ) from None


def _numbered(variables: Iterable[Tensor]) -> dict[str, np.ndarray]:
    return {str(i): np.asarray(variable) for i, variable in enumerate(variables)}


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    try:
        with written_whole(path) as new:
            np.savez(new, **arrays)  # type: ignore[arg-type]  # NumPy's stub takes the arrays for its option `allow_pickle`
    except OSError as error:
        raise no_space(error, f"checkpoint {path}") from None
