"""The folder of an unfinished training run: its recipe, vocabularies and checkpoints.

A run that is resumed from it continues exactly where it was interrupted.
"""

import errno
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict

import keras
import numpy as np

from tfk_transformer.array_types import Tensor
from tfk_transformer.atomic_write import atomic_write
from tfk_transformer.pipelines.bundle import RECIPE, read_metrics
from tfk_transformer.pipelines.recipe import Recipe
from tfk_transformer.training.history import Row

STATE = "state.npz"
SNAPSHOT = "weights-{epoch:05d}.npz"
ABOUT = "about"


class About(TypedDict):
    """The values in a checkpoint in addition to the variables."""

    rows: list[Row]  # of the history
    seconds: float  # of training so far


class Checkpoints:
    """The checkpoint of a training run, and the weights of the epochs to average.

    Each file is replaced atomically: if the process is killed, either the old or the new file
    exists.

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
        """Write all values on which the next training step depends.

        Args:
            model: a compiled model.
            about: the history and the training time.

        Raises:
            ValueError: if the disk is full; the earlier checkpoint stays.
        """
        arrays = _by_number(_variables(model))
        _write(self.folder / STATE, {**arrays, ABOUT: np.array(json.dumps(about))})

    def restore(self, model: keras.Model) -> About:
        """Restore the state of a model, and return the `about` that was saved with it.

        Args:
            model: a compiled model whose optimizer is built.

        Raises:
            ValueError: if the checkpoint belongs to another model.
        """
        variables = list(_variables(model))
        path = self.folder / STATE
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

    def update_snapshots(self, model: keras.Model, epoch: int, epochs: list[int]) -> None:
        """Save the weights of `epoch` if it is in `epochs`, and delete weights of other epochs.

        Args:
            model: the model after `epoch`.
            epoch: the epoch that has just ended.
            epochs: the epochs whose weights are kept.
        """
        if epoch in epochs:
            _write(self._snapshot(epoch), _by_number(model.weights))
        for path in self.folder.glob(SNAPSHOT.replace("{epoch:05d}", "*")):
            if path not in map(self._snapshot, epochs):
                path.unlink()

    def mean(self, epochs: list[int]) -> list[np.ndarray]:
        """Return the mean weights of at least one epoch, float32, in the order of the model."""
        totals: list[np.ndarray] = []
        for epoch in epochs:
            with np.load(self._snapshot(epoch)) as arrays:
                weights = [arrays[str(i)].astype(np.float64) for i in range(len(arrays.files))]
            totals = list(map(np.add, totals, weights)) if totals else weights
        return [(total / len(epochs)).astype(np.float32) for total in totals]

    def clean(self) -> None:
        """Delete the unfinished files of a killed process."""
        for leftover in self.folder.glob(".*"):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink()

    def _snapshot(self, epoch: int) -> Path:
        return self.folder / SNAPSHOT.format(epoch=epoch)


def work_folder_of(out: Path) -> Path:
    """Return the path of the folder of an unfinished training run, given its bundle `out`."""
    return out.with_name(out.name + ".training")


def check_work_folder(recipe: Recipe, out: Path, resume: bool) -> Path:
    """Check that a training run would not destroy earlier work, and return the path of its folder.

    Args:
        recipe: the recipe of the training run.
        out: the folder of the bundle.
        resume: whether to continue an unfinished training run.

    Raises:
        ValueError: if the recipe of the unfinished training run differs, or a new training run
            would overwrite earlier work.
    """
    work = work_folder_of(out)
    has_recipe = (work / RECIPE).is_file()
    if resume and has_recipe:
        free = {"minutes", "patience", "tensorboard", "profile"}
        if recipe.schedule != "cosine":
            free.add("epochs")
        _check_same(recipe, work, free)
    elif os.path.lexists(work):
        remedy = "resume it, or remove it" if has_recipe else f"it has no {RECIPE}, so remove it"
        raise ValueError(f"out: {work} holds an unfinished training; {remedy} to start again.")
    elif os.path.lexists(out):
        raise ValueError(
            f"out: expected a new folder, got {out}, which exists; choose another name or remove "
            "it."
        )
    return work


def is_finished(recipe: Recipe, out: Path) -> bool:
    """Return whether a training run has ended, so that there is nothing to resume.

    Args:
        recipe: the recipe of the training run.
        out: the folder of the bundle.

    Raises:
        ValueError: if `out` is not the bundle of a training run of the same recipe, or lacks
            epochs.
    """
    work = work_folder_of(out)
    if os.path.lexists(work) or not os.path.lexists(out):
        return False
    if not (out / RECIPE).is_file():
        raise ValueError(
            f"resume: expected the unfinished training of {out} in {work}, got none, and {out} "
            "was not trained; choose another name or remove it."
        )
    _check_same(recipe, out, free=set())
    epochs = read_metrics(out).get("epoch")
    ends_early = recipe.minutes is not None or recipe.patience is not None
    if epochs != recipe.epochs and not ends_early:
        raise ValueError(
            f"resume: expected the unfinished training of {out} in {work}, got none, and {out} "
            f"has {epochs} of {recipe.epochs} epochs; remove it to start again."
        )
    return True


def _check_same(recipe: Recipe, folder: Path, free: set[str]) -> None:
    """Refuse a recipe that differs from the recipe in a folder.

    Args:
        recipe: the recipe of this training run.
        folder: contains the recipe of the earlier training run.
        free: the fields that may differ.
    """
    earlier = Recipe.read(folder / RECIPE)
    changed = [
        name
        for name in Recipe.model_fields
        if name not in free and getattr(earlier, name) != getattr(recipe, name)
    ]
    if changed:
        was = ", ".join(f"{name}={getattr(earlier, name)!r}" for name in changed)
        raise ValueError(
            f"resume: expected the recipe that {folder} was started with, which had {was}."
        )


def disk_full_error(error: OSError, target: str) -> ValueError:
    """Return the error about a full disk for the user; raise any other system error again.

    Args:
        error: the error of the operating system.
        target: a phrase that names the file.
    """
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    return ValueError(
        f"{target}: no space left on the disk; what was saved before is as it was. Free some, and "
        "--resume."
    )


def _variables(model: keras.Model) -> Iterator[keras.Variable]:
    """Yield the state that passes from one epoch to the next.

    These are the weights, random states, moments and counters.
    """
    yield from model.variables
    yield from model.optimizer.variables


def _read_state(path: Path) -> tuple[list[np.ndarray], About]:
    """Return the arrays and the other values of a checkpoint.

    Raises:
        ValueError: if the file is corrupt.
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


def _by_number(variables: Iterable[Tensor]) -> dict[str, np.ndarray]:
    return {str(i): np.asarray(variable) for i, variable in enumerate(variables)}


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    try:
        with atomic_write(path) as new:
            # NumPy's stub confuses the arrays with its option `allow_pickle`.
            np.savez(new, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise disk_full_error(error, f"checkpoint {path}") from None
