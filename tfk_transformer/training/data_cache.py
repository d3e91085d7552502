"""A folder that caches the ids, vocabularies and probes of a training run.

With a complete cache, training does not read the texts again.
"""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from tfk_transformer import datasets
from tfk_transformer.atomic_write import atomic_write, lock
from tfk_transformer.data.batches import TokenBatches
from tfk_transformer.data.labels import Labels
from tfk_transformer.datasets import Pair, Source
from tfk_transformer.pipelines.bundle import (
    LABELS,
    PROBES,
    RECIPE,
    SOURCE_TOKENIZER,
    TARGET_TOKENIZER,
    read_probes,
    write_probes,
)
from tfk_transformer.pipelines.recipe import Recipe
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# The fields of a recipe on which the ids depend.
FIELDS = (
    "data validation_data max_length architecture tokenizer vocab_size separate_vocabularies "
    "byte_fallback subword_sampling"
).split()
PROBE_COUNT = 128

# Source and target tokenizer, or the tokenizer and the labels of a classifier.
Tokenizers: TypeAlias = tuple[SubwordTokenizer, SubwordTokenizer | Labels]


class CachedSource(Source):
    """A data source whose ids are in a cache, so that its texts are not read.

    Args:
        name: the spec of the data source.
        splits: the names of the splits in the cache.
    """

    def __init__(self, name: str, splits: tuple[str, ...]):
        super().__init__(name)
        self._splits = splits

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits in the cache."""
        return self._splits

    def _read(self, split: str) -> Iterator[Pair]:
        raise ValueError(
            f"cache: expected that only ids are read, got a request for the texts of {self.name}, "
            f"split '{split}'."
        )


class DataCache:
    """The folder `cache` of `train`.

    It contains the ids of each split (`train/`, `validation/`), the vocabularies, the probes, and
    the recipe for which it was made. The recipe is written last: if it exists, the folder is
    complete, and the texts are not read again.

    Args:
        folder: the folder. None: nothing is cached.
        recipe: the recipe of the training run.

    Raises:
        ValueError: if the folder was made for a recipe that leads to other ids.
    """

    def __init__(self, folder: str | Path | None, recipe: Recipe):
        self.folder = None if folder is None else Path(folder)
        self.recipe = recipe
        if complete := self._complete_folder():
            self._check_recipe(complete)

    @property
    def is_complete(self) -> bool:
        """Whether the folder contains everything that training needs."""
        return self._complete_folder() is not None

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which no other process writes the folder.

        Raises:
            ValueError: if another process is writing the folder.
        """
        if self.folder is None or self.is_complete:
            return contextlib.nullcontext()
        return lock(self.folder, "cache")

    def source(self, spec: str) -> Source:
        """Return the source of a data spec.

        If the cache is complete, it is a `CachedSource`, unless BLEU is measured, which needs the
        texts.
        """
        if not self.is_complete or self.recipe.evaluate_every:
            return datasets.load(spec)
        return CachedSource(spec, self._splits())

    def ids(self, split: str) -> Path | None:
        """Return the folder for the ids of a split; None if nothing is cached."""
        return None if self.folder is None else self.folder / split

    def tokenizers(self) -> Tokenizers | None:
        """Return the source and target tokenizers; None if the cache is not complete."""
        folder = self._complete_folder()
        return None if folder is None else load_tokenizers(folder, self.recipe)

    def check_tokenizers(self, tokenizers: Tokenizers) -> None:
        """Refuse a complete cache that was made with other tokenizers.

        Raises:
            ValueError: if the tokenizers are not the same byte for byte.
        """
        models = [tokenizer.model for tokenizer in tokenizers]
        cached = self.tokenizers()
        if cached and [tokenizer.model for tokenizer in cached] != models:
            raise ValueError(
                "cache: expected the tokenizers of the bundle that training starts from in "
                f"{self.folder}, got different tokenizers; name another folder, or remove this one."
            )

    def probes(self, batches: TokenBatches) -> list[str]:
        """Return the first source texts of the split of `batches`."""
        if (folder := self._complete_folder()) is not None:
            return read_probes(folder / PROBES)
        pairs = itertools.islice(batches.data.pairs(batches.split), PROBE_COUNT)
        return [pair.source for pair in pairs]

    def complete(self, tokenizers: Tokenizers, probes: list[str]) -> None:
        """Write vocabularies, probes and recipe next to the ids, unless they exist."""
        if self.folder is None or self.is_complete:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_probes(self.folder / PROBES, probes)
        save_tokenizers(self.folder, self.recipe, tokenizers)
        save_recipe(self.folder, self.recipe)

    def _complete_folder(self) -> Path | None:
        """Return the folder if it is complete."""
        return self.folder if self.folder is not None and (self.folder / RECIPE).is_file() else None

    def _splits(self) -> tuple[str, ...]:
        return tuple(
            split
            for split in ("train", "validation")
            if self.folder is not None and (self.folder / split).is_dir()
        )

    def _check_recipe(self, folder: Path) -> None:
        earlier = Recipe.read(folder / RECIPE)
        changed = [
            f"{name}={value!r}"
            for name in FIELDS
            if (value := getattr(earlier, name)) != getattr(self.recipe, name)
        ]
        if self.recipe.start is None and earlier.start is not None:
            changed.append(f"the vocabularies of {earlier.start}")
        if changed:
            raise ValueError(
                f"cache: {folder} was made with {', '.join(changed)}; name another folder, or "
                "remove this one."
            )


def tokenizer_files(recipe: Recipe) -> tuple[str, str]:
    """Return the file names of both tokenizers, or of a classifier's tokenizer and labels."""
    return SOURCE_TOKENIZER, LABELS if recipe.architecture == "encoder" else TARGET_TOKENIZER


def tokenizer_types(
    recipe: Recipe,
) -> tuple[type[SubwordTokenizer], type[SubwordTokenizer] | type[Labels]]:
    """Return the classes that encode the source and the target side."""
    return SubwordTokenizer, Labels if recipe.architecture == "encoder" else SubwordTokenizer


def load_tokenizers(folder: Path, recipe: Recipe) -> Tokenizers:
    """Read the tokenizers that `save_tokenizers` wrote."""
    source_type, target_type = tokenizer_types(recipe)
    source_file, target_file = tokenizer_files(recipe)
    return source_type.load(folder / source_file), target_type.load(folder / target_file)


def save_tokenizers(folder: Path, recipe: Recipe, tokenizers: Tokenizers) -> None:
    """Write the tokenizers into a folder."""
    for tokenizer, name in zip(tokenizers, tokenizer_files(recipe), strict=True):
        with atomic_write(folder / name) as new:
            tokenizer.save(new)


def save_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the recipe into a folder."""
    with atomic_write(folder / RECIPE) as new:
        new.write_text(recipe.to_toml(), encoding="utf-8")
