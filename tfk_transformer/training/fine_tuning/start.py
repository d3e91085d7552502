"""The bundle that a training run starts from: its tokenizers, weights and values of a recipe."""

import filecmp
import functools
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tfk_transformer.atomic_write import atomic_write, path_identity
from tfk_transformer.config.model_options import EnsembleConfig
from tfk_transformer.data.labels import Labels
from tfk_transformer.models.configured_model import ConfiguredModel
from tfk_transformer.pipelines.bundle import (
    CLASSIFIER,
    CONFIG,
    LABELS,
    METRICS,
    RECIPE,
    SOURCE_TOKENIZER,
    TARGET_TOKENIZER,
    TRANSLATOR,
    Json,
    bundle_type_of,
    read_config,
    read_model,
    read_origin,
    read_search,
)
from tfk_transformer.pipelines.model_record import MODEL, make_recorded
from tfk_transformer.pipelines.weights import WEIGHTS_FILE
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.fine_tuning.freezing import frozen_names
from tfk_transformer.training.fine_tuning.mismatches import DROPOUT, are_separate, mismatches

if TYPE_CHECKING:
    from tfk_transformer.pipelines.recipe import Recipe

START_COPY = "start"  # the copy of the bundle in the folder of an unfinished training run
# Files on which training depends.
TRAINING_FILES = (CONFIG, MODEL, WEIGHTS_FILE, SOURCE_TOKENIZER, TARGET_TOKENIZER, LABELS)


class Start:
    """The bundle that a training run starts from.

    The constructor reads the configuration and the tokenizers. The weights are read on first use,
    which starts TensorFlow.

    Args:
        folder: a bundle of any type, except an ensemble.

    Raises:
        ValueError: if the folder is not a bundle, files are missing, or its model is an ensemble.
            All methods raise it if the folder has been replaced.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._identity = path_identity(folder)
        self._type = bundle_type_of(folder) or TRANSLATOR
        config = read_config(folder, self._type)
        if isinstance(config, EnsembleConfig):
            raise ValueError(
                f"start: expected a single model, got an ensemble of {len(config.members)} in "
                f"{folder}, whose members are trained one by one; continue from the bundle of "
                "each, and join the results with `tfk-transformer ensemble`."
            )
        self.config = config
        source = SubwordTokenizer.load(folder / SOURCE_TOKENIZER)
        target = (
            Labels.load(folder / LABELS)
            if self._type == CLASSIFIER
            else SubwordTokenizer.load(folder / TARGET_TOKENIZER)
        )
        self.tokenizers = (source, source if target.model == source.model else target)
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        """Refuse a folder that was replaced since the constructor read it."""
        if path_identity(self.folder) != self._identity:
            raise ValueError(
                f"start: expected a bundle that stays while it is read, got {self.folder}, which "
                "was replaced; start again."
            )

    @property
    def origin(self) -> Json:
        """The origin of an imported model; empty for other models."""
        return read_origin(self.folder)

    @property
    def search(self) -> Json:
        """The model's own defaults of search settings."""
        return read_search(self.folder)

    @functools.cached_property
    def weights(self) -> Mapping[str, np.ndarray]:
        """The float32 weights by name."""
        weights = {
            name: np.asarray(weight)
            for name, weight in read_model(self.folder, self._type).named_weights.items()
        }
        self._check_unchanged()
        return weights

    @property
    def fingerprint(self) -> str:
        """A hash of the weights."""
        digest = hashlib.sha256()
        for array in self.weights.values():
            digest.update(array.tobytes())
        return digest.hexdigest()[:8]

    def adopt(self, recipe: "Recipe") -> "Recipe":
        """Return a recipe with the values that the bundle decides.

        The operation is idempotent.

        Raises:
            ValueError: with every explicit value of the recipe that does not fit.
        """
        path = self.folder / RECIPE
        earlier = recipe.read_values(path) if path.is_file() else {}
        if problems := list(mismatches(recipe, self.config, self.tokenizers, earlier)):
            raise ValueError(
                f"start: expected values that fit the model in {self.folder}, got "
                f"{', '.join(problems)}; leave out what the bundle decides, or train a new model."
            )
        default_length = min(self.config.max_length, recipe.batch_tokens)
        length = recipe.max_length if "max_length" in recipe.model_fields_set else default_length
        separate = are_separate(self.config, self.tokenizers)
        return recipe.replace(
            architecture=self.config.architecture, separate_vocabularies=separate, max_length=length
        )

    def model(self, recipe: "Recipe", dtype: str) -> ConfiguredModel:
        """Return a built model with the weights of the bundle.

        The weights that the recipe names are frozen.

        Args:
            recipe: the recipe of the training run.
            dtype: name of Keras's dtype policy.
        """
        changes = {name: value for name, value in recipe.options.items() if name.endswith(DROPOUT)}
        if recipe.dropout is not None:
            changes["dropout"] = recipe.dropout
        if recipe.architecture != "encoder":
            changes |= recipe.languages()
        model = make_recorded(self.config.replace(**changes), self.folder, dtype)
        frozen = self.frozen_weights(recipe)
        for name, weight in model.named_weights.items():
            weight.assign(self.weights[name])
            if name in frozen:
                weight.trainable = False
        del self.weights  # to save memory
        return model

    def frozen_weights(self, recipe: "Recipe") -> list[str]:
        """Return the names of the frozen weights; see `frozen_names`."""
        return frozen_names(recipe.freeze, self.weights)

    def copy_to(self, work: Path) -> None:
        """Copy the files that a resumed run needs, unless this bundle is already the copy.

        Args:
            work: the folder of the unfinished training run.
        """
        if self.folder == work / START_COPY:
            return
        with atomic_write(work / START_COPY) as new:
            new.mkdir()
            for name in (*TRAINING_FILES, METRICS, RECIPE):
                if (self.folder / name).is_file():
                    shutil.copyfile(self.folder / name, new / name)
            self._check_unchanged()


def load_start(recipe: "Recipe", work: Path, resume: bool) -> Start | None:
    """Return the bundle that a recipe starts from; None for a new model.

    A resumed run reads its copy of the bundle, since the bundle may be gone by then.

    Args:
        recipe: the recipe of the training run.
        work: the folder of the unfinished training run.
        resume: whether to continue that training run.

    Raises:
        ValueError: if the bundle cannot be read, or has changed since the training run was started.
    """
    if recipe.start is None:
        return None
    folder = Path(recipe.start)
    copy = work / START_COPY
    if not (resume and copy.is_dir()):
        return Start(folder)
    if folder.is_dir():
        names = [name for name in TRAINING_FILES if (copy / name).is_file()]
        _, changed, missing = filecmp.cmpfiles(copy, folder, names, shallow=False)
        if changed or missing:
            files = ", ".join([*changed, *missing])
            raise ValueError(
                f"resume: expected in {folder} the bundle that {work} was started from, got "
                f"another {files}; pass the original bundle, or start again in another folder."
            )
    return Start(copy)
