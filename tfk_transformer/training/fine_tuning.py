"""Fine-tuning: the bundle that a training run starts from, and the weights that stay frozen."""

import filecmp
import fnmatch
import functools
import hashlib
import itertools
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from tfk_transformer.config.words import nearest, shorten
from tfk_transformer.layers.crossentropy import MIN_LOG_PROB
from tfk_transformer.models.configured_model import ConfiguredModel
from tfk_transformer.pipelines import bundle
from tfk_transformer.pipelines.model_record import MODEL, make_recorded
from tfk_transformer.pipelines.weights import WEIGHTS_FILE
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.checkpoints import Tokenizers, load_tokenizers
from tfk_transformer.training.recipe import TOKEN_FIELDS, Recipe

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
# Words that are not beginnings of weights' names, unlike "encoder" and "decoder".
GROUPS = {"embeddings": ("*_embedding/*", "*_positions/*")}
OUTPUT_BIAS = "output/bias"

SingleConfig: TypeAlias = TransformerConfig | LanguageModelConfig | ClassifierConfig


class Start:
    """The bundle that a training run starts from, of any type except an ensemble.

    The weights are read on first use, which starts TensorFlow. A folder that is replaced after the
    constructor read the configuration and the tokenizers is refused.
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
        self.origin = bundle.read_record(folder, bundle.ORIGIN)  # of an imported model
        self.search = bundle.read_record(folder, bundle.SEARCH)  # the model's own defaults
        # One object, so that exports contain it once.
        self.tokenizers = (source, source if target.model == source.model else target)
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        if path_identity(self.folder) != self._identity:
            raise ValueError(
                f"start: expected a bundle that stays while it is read, got {self.folder}, which "
                "was replaced; start again."
            )

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
        """Return a recipe with the values that the bundle decides; idempotent."""
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
        """Return a built model with the weights of the bundle; `dtype` is Keras's policy."""
        changes = {name: value for name, value in recipe.options.items() if name.endswith(DROPOUT)}
        if recipe.dropout is not None:
            changes["dropout"] = recipe.dropout
        if not recipe.classifies:
            changes |= recipe.languages()
        model = make_recorded(self.config.replace(**changes), self.folder, dtype)
        frozen = frozen_names(recipe.freeze, self.weights)
        for name, weight in model.named_weights.items():
            weight.assign(self.weights[name])
            if name in frozen:
                weight.trainable = False
        del self.weights  # to save memory
        return model

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

    A resumed run reads its copy in the folder `work`, since the bundle may be gone by then.
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
    """Describe every explicit value of a recipe that differs from the bundle's, except dropout.

    The values `earlier` of the bundle's recipe always fit: the vocabulary, for example, may be
    smaller than its `vocab_size`.
    """
    explicit = recipe.model_fields_set
    subwords = [tokenizer for tokenizer in tokenizers if isinstance(tokenizer, SubwordTokenizer)]
    accepted_values: dict[str, list[Any]] = {  # two sides can have two values
        "architecture": [config.architecture],
        "tokenizer": sorted({tokenizer.model_type for tokenizer in subwords}),
        "vocab_size": sorted({tokenizer.vocab_size for tokenizer in subwords}),
        "separate_vocabularies": [_are_separate(config, tokenizers)],
        "byte_fallback": sorted({tokenizer.byte_fallback for tokenizer in subwords}),
        **{name: [earlier.get(name)] for name in TOKEN_FIELDS},
    }
    for name, accepted in accepted_values.items():
        value = getattr(recipe, name)
        if name in explicit and value not in accepted and value != earlier.get(name):
            yield f"{name} {value!r} for {' and '.join(map(repr, accepted))}"
    if "max_length" in explicit and recipe.max_length > config.max_length:
        yield f"max_length {recipe.max_length:,} for at most {config.max_length:,}"
    if recipe.consistency and (output := getattr(config, "output", "logits")) != "logits":
        yield f"consistency {recipe.consistency:g} for a model whose output is '{output}'"
    fields = type(config).model_fields
    values = {
        **config.model_dump(mode="json"),
        "ff_dim": config.ff_width,
        "key_dim": config.query_width,
        "value_dim": config.value_width,
    }
    preset = PRESETS[recipe.preset] if "preset" in explicit else {}
    preset_options = {name: value for name, value in preset.items() if name in fields}
    for name, value in {**preset_options, **recipe.options}.items():
        if name not in fields:
            yield f"unknown option '{name}'.{nearest(name, fields)}"
        elif name.endswith(DROPOUT) or value == values[name]:
            continue
        elif not _is_equivalent(config, name, value):
            yield f"{name} {value!r} for {values[name]!r}"


def _are_separate(config: SingleConfig, tokenizers: Tokenizers) -> bool:
    """Return whether source and target have different tokenizers."""
    source, target = tokenizers
    return config.architecture == "encoder_decoder" and target is not source


def _is_equivalent(config: SingleConfig, name: str, value: object) -> bool:
    """Return whether a value only differs in notation, as `attention_bias=True` may."""
    try:
        return bool(getattr(config.replace(**{name: value}), name) == getattr(config, name))
    except ValueError:  # a value that does not suit the other options
        return False


def frozen_names(patterns: Sequence[str], weights: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names of the frozen weights, in the order of the model.

    Patterns are names of weights, beginnings of names up to a slash, patterns of `fnmatch`, or
    "embeddings". Each must match a weight, and a weight must be left to train.
    """
    matches = {pattern: _matching(pattern, weights) for pattern in patterns}
    if unknown := [pattern for pattern, names in matches.items() if not names]:
        beginnings = (itertools.accumulate(name.split("/"), "{}/{}".format) for name in weights)
        candidates = sorted({*GROUPS, *itertools.chain.from_iterable(beginnings)})
        suggestions = (f"'{shorten(word)}'.{nearest(word, candidates)}" for word in unknown)
        raise ValueError(
            "freeze: expected names of weights, such as encoder or encoder/layer_0, got "
            f"{'; '.join(suggestions)}"
        )
    selected = set().union(*matches.values())
    # Weight decay and moving averages would change a bias that rules tokens out (-1e9, imported).
    if OUTPUT_BIAS in weights and (weights[OUTPUT_BIAS] < MIN_LOG_PROB).any():
        selected.add(OUTPUT_BIAS)
    frozen = [name for name in weights if name in selected]
    if len(frozen) == len(weights):
        raise ValueError(
            f"freeze: expected at least one weight to train, got none: all {len(weights)} are "
            "frozen; freeze fewer."
        )
    return frozen


def frozen_line(model: ConfiguredModel, patterns: Sequence[str]) -> str | None:
    """Return a line about the weights that patterns froze in a model; None if there are none."""
    weights = model.named_weights
    frozen = {name: weight for name, weight in weights.items() if not weight.trainable}
    if not frozen:
        return None
    requested = set().union(*(_matching(pattern, weights) for pattern in patterns))
    added = [
        f"{name}, since some tokens are never predicted" for name in frozen if name not in requested
    ]
    frozen_size, size = (
        sum(math.prod(weight.shape) for weight in group.values()) for group in (frozen, weights)
    )
    return (
        f"frozen: {len(frozen)} of {len(weights)} weights, {frozen_size:,} of {size:,} "
        f"parameters: {', '.join([*patterns, *added])}"
    )


def _matching(pattern: str, names: Iterable[str]) -> set[str]:
    patterns = GROUPS.get(pattern, (pattern, f"{pattern}/*"))
    return {name for name in names if any(fnmatch.fnmatchcase(name, p) for p in patterns)}
