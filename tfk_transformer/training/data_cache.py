"""A folder with the ids, vocabularies and probes of a training run, so that the texts are read only
once.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from tfk_transformer import datasets
from tfk_transformer.atomic_write import written_whole
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
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.recipe import Recipe

# The fields of a recipe on which the ids depend.
FIELDS = (
    "data validation_data max_length architecture tokenizer vocab_size separate_vocabularies "
    "byte_fallback subword_sampling"
).split()
PROBE_COUNT = 128

# Source and target tokenizer, or the tokenizer and the labels of a classifier.
Tokenizers: TypeAlias = tuple[SubwordTokenizer, SubwordTokenizer | Labels]


class CachedSource(Source):
    """Replaces a data source whose ids are in a cache, so that its texts are not read.

    Args:
        name: the spec of the data.
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
    """The folder that is given to `train` as `cache`.

    It contains the ids of each split (`train/`, `validation/`), the vocabularies, the probes, and
    the recipe for which it was made. The recipe is written last: if it exists, the folder is
    complete, and the data itself is not read again.

    Args:
        folder: the folder. None: nothing is cached.
        recipe: the recipe of the training run.

    Raises:
        ValueError: if the folder was made for a recipe that leads to other ids.
    """

    def __init__(self, folder: str | Path | None, recipe: Recipe):
        self.folder = None if folder is None else Path(folder)
        self.recipe = recipe
        if complete := self._complete():
            self._check(complete)

    @property
    def is_complete(self) -> bool:
        """Whether the folder contains everything that training needs."""
        return self._complete() is not None

    def source(self, spec: str) -> Source:
        """Return the source of a data spec, or its replacement if the cache is complete and no BLEU
        is measured, which needs texts.
        """
        if not self.is_complete or self.recipe.evaluate_every:
            return datasets.load(spec)
        return CachedSource(spec, self._splits())

    def ids(self, split: str) -> Path | None:
        """Return the folder for the ids of a split; None if nothing is cached."""
        return None if self.folder is None else self.folder / split

    def tokenizers(self) -> Tokenizers | None:
        """Return the source and target tokenizers; None if the cache is not complete."""
        folder = self._complete()
        return None if folder is None else load_tokenizers(folder, self.recipe)

    def check_tokenizers(self, wanted: Tokenizers) -> None:
        """Refuse a complete cache whose ids are those of other tokenizers.

        Raises:
            ValueError: if the tokenizers are not the same byte for byte.
        """
        found = self.tokenizers()
        if found and [tokenizer.model for tokenizer in found] != [
            tokenizer.model for tokenizer in wanted
        ]:
            raise ValueError(
                "cache: expected the tokenizers of the bundle that training starts from in "
                f"{self.folder}, got others; name another "
                "folder, or remove this one."
            )

    def probes(self, batches: TokenBatches) -> list[str]:
        """Return some source texts of the split of `batches`."""
        if (folder := self._complete()) is not None:
            return read_probes(folder / PROBES)
        return [
            pair.source for pair in itertools.islice(batches.data.pairs(batches.split), PROBE_COUNT)
        ]

    def complete(self, tokenizers: Tokenizers, probes: list[str]) -> None:
        """Write vocabularies, probes and recipe next to the ids, unless they exist."""
        if self.folder is None or self.is_complete:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_probes(self.folder / PROBES, probes)
        save_tokenizers(self.folder, self.recipe, tokenizers)
        save_recipe(self.folder, self.recipe)

    def _complete(self) -> Path | None:
        """Return the folder if it is complete."""
        return self.folder if self.folder is not None and (self.folder / RECIPE).is_file() else None

    def _splits(self) -> tuple[str, ...]:
        return tuple(
            split
            for split in ("train", "validation")
            if self.folder is not None and (self.folder / split).is_dir()
        )

    def _check(self, folder: Path) -> None:
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
    """Return the names of the files for both tokenizers, or for the tokenizer and the labels of a
    classifier.
    """
    return SOURCE_TOKENIZER, LABELS if recipe.architecture == "encoder" else TARGET_TOKENIZER


def tokenizer_types(
    recipe: Recipe,
) -> tuple[type[SubwordTokenizer], type[SubwordTokenizer] | type[Labels]]:
    """Return the classes that encode the source and the target side."""
    return SubwordTokenizer, Labels if recipe.architecture == "encoder" else SubwordTokenizer


def load_tokenizers(folder: Path, recipe: Recipe) -> Tokenizers:
    """Read the tokenizers that `save_tokenizers` wrote."""
    (source, target), (source_file, target_file) = tokenizer_types(recipe), tokenizer_files(recipe)
    return source.load(folder / source_file), target.load(folder / target_file)


def save_tokenizers(folder: Path, recipe: Recipe, tokenizers: Tokenizers) -> None:
    """Write the tokenizers into a folder."""
    for tokenizer, name in zip(tokenizers, tokenizer_files(recipe), strict=True):
        with written_whole(folder / name) as new:
            tokenizer.save(new)


def save_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the recipe into a folder."""
    with written_whole(folder / RECIPE) as new:
        new.write_text(recipe.to_toml(), encoding="utf-8")
