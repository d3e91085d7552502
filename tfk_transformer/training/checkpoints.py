"""The folder of an unfinished training run: its recipe, vocabularies and checkpoints."""

import errno
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import keras
import numpy as np

from tfk_transformer.array_types import Tensor
from tfk_transformer.atomic_write import atomic_write, check_new
from tfk_transformer.config.array_files import npz_headers, open_archive, read_npz
from tfk_transformer.config.small_files import one_line_error, parse_json_object
from tfk_transformer.data.labels import Labels
from tfk_transformer.pipelines import bundle
from tfk_transformer.pipelines.bundle import Json
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.recipe import Recipe, changed_values

# Source and target tokenizer, or the tokenizer and the labels of a classifier.
Tokenizers: TypeAlias = tuple[SubwordTokenizer, SubwordTokenizer | Labels]

STATE = "state.npz"
SNAPSHOT = "weights-{epoch:05d}.npz"
ABOUT = "about"


class Checkpoints:
    """The checkpoint of a training run, and the weights of the epochs to average.

    Each file is replaced atomically. A process with `writes=False` only reads them.
    """

    def __init__(self, folder: str | Path, writes: bool = True):
        self.folder = Path(folder)
        self.writes = writes

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint."""
        return (self.folder / STATE).is_file()

    def save(self, model: keras.Model, about: Json) -> None:
        """Write all values on which the next training step of a compiled model depends.

        `about` has the "rows" of the history and the "seconds" of training so far.
        """
        if self.writes:
            arrays = _by_number(_variables(model))
            _write(self.folder / STATE, {**arrays, ABOUT: np.array(json.dumps(about))})

    def restore(self, model: keras.Model) -> Json:
        """Restore the state of a compiled model, and return the `about` that was saved with it."""
        variables = _variables(model)
        path = self.folder / STATE
        with (
            one_line_error(
                f"resume: the state in {path} does not load: ", "; remove it to start anew."
            ),
            open_archive(path) as archive,
        ):
            headers = npz_headers(archive)
            about: Json = parse_json_object(str(read_npz(archive, ABOUT)), ABOUT)
            rows = about.get("rows")
            has_rows = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
            if not has_rows or not isinstance(about.get("seconds"), int | float):
                raise ValueError("expected the rows of the history and the seconds of training")
            count = len(headers) - 1
            if [headers[str(i)].shape for i in range(count)] != [tuple(v.shape) for v in variables]:
                raise ValueError("expected the state of this model, got that of another")
            values = [read_npz(archive, str(i)) for i in range(count)]
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return about

    def update_snapshots(self, model: keras.Model, epoch: int, epochs: list[int]) -> None:
        """Save the weights after `epoch` if it is in `epochs`, and delete those of other epochs."""
        if not self.writes:
            return
        if epoch in epochs:
            _write(self._snapshot(epoch), _by_number(model.weights))
        for path in self.folder.glob(SNAPSHOT.replace("{epoch:05d}", "*")):
            if path not in map(self._snapshot, epochs):
                path.unlink()

    def mean(self, epochs: list[int]) -> list[np.ndarray]:
        """Return the mean weights of at least one epoch, float32, in the order of the model."""
        totals: list[np.ndarray] = []
        for epoch in epochs:
            path = self._snapshot(epoch)
            with one_line_error(f"resume: {path} does not load: "), open_archive(path) as archive:
                names = map(str, range(len(npz_headers(archive))))
                weights = [read_npz(archive, name).astype(np.float64) for name in names]
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


def _variables(model: keras.Model) -> list[keras.Variable]:
    """Return the weights, random states, moments and counters."""
    return [*model.variables, *model.optimizer.variables]


def _by_number(variables: Iterable[Tensor]) -> dict[str, np.ndarray]:
    return {str(i): np.asarray(variable) for i, variable in enumerate(variables)}


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    try:
        with atomic_write(path) as new:
            # NumPy's stub confuses the arrays with its option `allow_pickle`.
            np.savez(new, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise disk_full_error(error, f"checkpoint {path}") from None


def disk_full_error(error: OSError, target: str) -> ValueError:
    """Return the user's error about a full disk; raise any other system error again."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    return ValueError(
        f"{target}: no space left on the disk; what was saved before is as it was. Free some, and "
        "--resume."
    )


def target_side(architecture: str) -> tuple[str, type[SubwordTokenizer] | type[Labels]]:
    """Return the file name and the class of the target tokenizer, or of a classifier's labels."""
    if architecture == "encoder":
        return bundle.LABELS, Labels
    return bundle.TARGET_TOKENIZER, SubwordTokenizer


def load_tokenizers(folder: Path, architecture: str) -> Tokenizers:
    """Read the tokenizers in a folder, which may be a bundle."""
    file, target = target_side(architecture)
    return SubwordTokenizer.load(folder / bundle.SOURCE_TOKENIZER), target.load(folder / file)


def save_tokenizers(folder: Path, recipe: Recipe, tokenizers: Tokenizers) -> None:
    """Write the tokenizers into a folder."""
    target_file, _ = target_side(recipe.architecture)
    for tokenizer, name in zip(tokenizers, (bundle.SOURCE_TOKENIZER, target_file), strict=True):
        with atomic_write(folder / name) as new:
            tokenizer.save(new)


def save_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the recipe into a folder."""
    with atomic_write(folder / bundle.RECIPE) as new:
        new.write_text(recipe.to_toml(), encoding="utf-8")


def work_folder_of(out: Path) -> Path:
    """Return the path of the folder of an unfinished training run, given its bundle `out`."""
    return out.with_name(out.name + ".training")


def check_work_folder(recipe: Recipe, out: Path, resume: bool) -> None:
    """Refuse a run that would destroy earlier work, or resume that of another recipe."""
    work = work_folder_of(out)
    has_recipe = (work / bundle.RECIPE).is_file()
    if resume and has_recipe:
        free = {"minutes", "patience", "tensorboard", "profile"}
        if recipe.schedule != "cosine":
            free.add("epochs")
        _check_same(recipe, work, free)
    elif os.path.lexists(work):
        remedy = (
            "resume it, or remove it" if has_recipe else f"it has no {bundle.RECIPE}, so remove it"
        )
        raise ValueError(f"out: {work} holds an unfinished training; {remedy} to start again.")
    else:
        check_new(out)


def is_finished(recipe: Recipe, out: Path) -> bool:
    """Return whether a run of this recipe has ended, so that there is nothing to resume."""
    work = work_folder_of(out)
    if os.path.lexists(work) or not os.path.lexists(out):
        return False
    if not (out / bundle.RECIPE).is_file():
        raise ValueError(
            f"resume: expected the unfinished training of {out} in {work}, got none, and {out} "
            "was not trained; choose another name or remove it."
        )
    _check_same(recipe, out, free=set())
    epochs = bundle.read_metrics(out).get("epoch")
    ends_early = recipe.minutes is not None or recipe.patience is not None
    if epochs != recipe.epochs and not ends_early:
        raise ValueError(
            f"resume: expected the unfinished training of {out} in {work}, got none, and {out} "
            f"has {epochs} of {recipe.epochs} epochs; remove it to start again."
        )
    return True


def _check_same(recipe: Recipe, folder: Path, free: set[str]) -> None:
    """Refuse a recipe that differs from the recipe in a folder in other fields than `free`."""
    names = (name for name in Recipe.model_fields if name not in free)
    if changed := changed_values(recipe, Recipe.read(folder / bundle.RECIPE), names):
        raise ValueError(
            f"resume: expected the recipe that {folder} was started with, which had "
            f"{', '.join(changed)}."
        )
