"""The bundle that a training run starts from: its tokenizers, weights and values of a recipe."""

import filecmp
import functools
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tfk_transformer.atomic_write import atomic_write, path_identity
from tfk_transformer.config.model_options import (
    ClassifierConfig,
    EnsembleConfig,
    LanguageModelConfig,
    TransformerConfig,
)
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.words import nearest
from tfk_transformer.models.configured_model import ConfiguredModel
from tfk_transformer.pipelines import bundle
from tfk_transformer.pipelines.bundle import Json
from tfk_transformer.pipelines.model_record import MODEL, make_recorded
from tfk_transformer.pipelines.weights import WEIGHTS_FILE
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.data_cache import Tokenizers, load_tokenizers
from tfk_transformer.training.fine_tuning.freezing import frozen_names
from tfk_transformer.training.recipe import Recipe

START_COPY = "start"  # the copy of the bundle in the folder of an unfinished training run
# Files on which training depends.
TRAINING_FILES = (
    bundle.CONFIG,
    MODEL,
    WEIGHTS_FILE,
    bundle.SOURCE_TOKENIZER,
    bundle.TARGET_TOKENIZER,
    bundle.LABELS,
)
DROPOUT = "dropout"  # suffix of the options that do not affect the weights

SingleConfig: TypeAlias = TransformerConfig | LanguageModelConfig | ClassifierConfig


class Start:
    """The bundle that a training run starts from.

    The constructor reads the configuration and the tokenizers. The weights are read on first use,
    which starts TensorFlow. A folder that is replaced in between is refused.

    Args:
        folder: a bundle of any type, except an ensemble.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._identity = path_identity(folder)
        self._reader = bundle.reader_of(folder) or bundle.TRANSLATOR
        config = bundle.read_config(folder, self._reader)
        if isinstance(config, EnsembleConfig):
            raise ValueError(
                f"start: expected a single model, got an ensemble of {len(config.members)} in "
                f"{folder}, whose members are trained one by one; continue from the bundle of "
                "each, and join the results with `tfk-transformer ensemble`."
            )
        self.config = config
        source, target = load_tokenizers(folder, config.architecture)
        # One object, so that exports contain it once.
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
        return bundle.read_record(self.folder, bundle.ORIGIN)

    @property
    def search(self) -> Json:
        """The model's own defaults of search settings."""
        return bundle.read_record(self.folder, bundle.SEARCH)

    @functools.cached_property
    def weights(self) -> Mapping[str, np.ndarray]:
        """The float32 weights by name."""
        model = bundle.read_model(self.folder, self._reader)
        weights = {name: np.asarray(weight) for name, weight in model.named_weights.items()}
        self._check_unchanged()
        return weights

    @property
    def fingerprint(self) -> str:
        """A hash of the weights."""
        digest = hashlib.sha256()
        for array in self.weights.values():
            digest.update(array.tobytes())
        return digest.hexdigest()[:8]

    def adopt(self, recipe: Recipe) -> Recipe:
        """Return a recipe with the values that the bundle decides.

        The operation is idempotent. Explicit values of the recipe that do not fit are refused.
        """
        path = self.folder / bundle.RECIPE
        earlier = recipe.read_values(path) if path.is_file() else {}
        if problems := list(_mismatches(recipe, self.config, self.tokenizers, earlier)):
            raise ValueError(
                f"start: expected values that fit the model in {self.folder}, got "
                f"{', '.join(problems)}; leave out what the bundle decides, or train a new model."
            )
        default_length = min(self.config.max_length, recipe.batch_tokens)
        length = recipe.max_length if "max_length" in recipe.model_fields_set else default_length
        separate = _are_separate(self.config, self.tokenizers)
        return recipe.replace(
            architecture=self.config.architecture, separate_vocabularies=separate, max_length=length
        )

    def model(self, recipe: Recipe, dtype: str) -> ConfiguredModel:
        """Return a built model with the weights of the bundle, of which some are frozen.

        `dtype` is the name of Keras's dtype policy.
        """
        changes = {name: value for name, value in recipe.options.items() if name.endswith(DROPOUT)}
        if recipe.dropout is not None:
            changes["dropout"] = recipe.dropout
        if not recipe.classifies:
            changes |= recipe.languages()
        model = make_recorded(self.config.replace(**changes), self.folder, dtype)
        frozen = self.frozen_weights(recipe)
        for name, weight in model.named_weights.items():
            weight.assign(self.weights[name])
            if name in frozen:
                weight.trainable = False
        del self.weights  # to save memory
        return model

    def frozen_weights(self, recipe: Recipe) -> list[str]:
        """Return the names of the frozen weights; see `frozen_names`."""
        return frozen_names(recipe.freeze, self.weights)

    def copy_to(self, work: Path) -> None:
        """Copy the files that a resumed run needs to its folder, unless they are the copy."""
        if self.folder == work / START_COPY:
            return
        with atomic_write(work / START_COPY) as new:
            new.mkdir()
            for name in (*TRAINING_FILES, bundle.METRICS, bundle.RECIPE):
                if (self.folder / name).is_file():
                    shutil.copyfile(self.folder / name, new / name)
            self._check_unchanged()


def load_start(recipe: Recipe, work: Path, resume: bool) -> Start | None:
    """Return the bundle that a recipe starts from; None for a new model.

    A resumed run reads its copy of the bundle in the folder `work` of the unfinished training run,
    since the bundle may be gone by then. A bundle that has changed is refused.
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


def _mismatches(
    recipe: Recipe, config: SingleConfig, tokenizers: Tokenizers, earlier: Mapping[str, Any]
) -> Iterator[str]:
    """Describe every explicit value of a recipe that differs from the bundle's.

    Defaults and dropout rates never count as different. The values `earlier` of the bundle's recipe
    always fit: the vocabulary, for example, may be smaller than its `vocab_size`.
    """
    explicit = recipe.model_fields_set
    subwords = [tokenizer for tokenizer in tokenizers if isinstance(tokenizer, SubwordTokenizer)]
    accepted_values: dict[str, list[Any]] = {  # two sides can have two values
        "architecture": [config.architecture],
        "tokenizer": sorted({tokenizer.model_type for tokenizer in subwords}),
        "vocab_size": sorted({tokenizer.vocab_size for tokenizer in subwords}),
        "separate_vocabularies": [_are_separate(config, tokenizers)],
        "byte_fallback": sorted({tokenizer.byte_fallback for tokenizer in subwords}),
    }
    for name, accepted in accepted_values.items():
        value = getattr(recipe, name)
        if name in explicit and value not in accepted and value != earlier.get(name):
            yield f"{name} {value!r} for {' and '.join(map(repr, accepted))}"
    if "max_length" in explicit and recipe.max_length > config.max_length:
        yield f"max_length {recipe.max_length:,} for at most {config.max_length:,}"
    if recipe.consistency and (output := getattr(config, "output", "logits")) != "logits":
        yield f"consistency {recipe.consistency:g} for a model whose output is '{output}'"
    preset = PRESETS[recipe.preset] if "preset" in explicit else {}
    yield from _option_mismatches(config, preset, recipe.options)


def _are_separate(config: SingleConfig, tokenizers: Tokenizers) -> bool:
    """Return whether source and target have different tokenizers."""
    source, target = tokenizers
    return config.architecture == "encoder_decoder" and target is not source


def _option_mismatches(
    config: SingleConfig, preset: Mapping[str, Any], options: Mapping[str, Any]
) -> Iterator[str]:
    """Describe the options, from a preset or by name, that differ from the bundle's."""
    fields = type(config).model_fields
    values = {
        **config.model_dump(mode="json"),
        "ff_dim": config.ff_width,
        "key_dim": config.query_width,
        "value_dim": config.value_width,
    }
    preset_options = {name: value for name, value in preset.items() if name in fields}
    for name, value in {**preset_options, **options}.items():
        if name not in fields:
            yield f"unknown option '{name}'.{nearest(name, fields)}"
        elif (
            not name.endswith(DROPOUT)
            and value != values[name]
            and not _is_equivalent(config, name, value)
        ):
            yield f"{name} {value!r} for {values[name]!r}"


def _is_equivalent(config: SingleConfig, name: str, value: object) -> bool:
    """Return whether a value only differs in notation, as `attention_bias=True` may."""
    try:
        return bool(getattr(config.replace(**{name: value}), name) == getattr(config, name))
    except ValueError:  # a value that does not suit the other options
        return False
