"""A folder that caches the ids, vocabularies and probes of a training run."""

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
from tfk_transformer.pipelines import bundle
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.recipe import Recipe, changed_values

# The fields of a recipe on which the ids depend.
FIELDS = (
    "data validation_data max_length architecture tokenizer vocab_size separate_vocabularies "
    "byte_fallback subword_sampling"
).split()
PROBE_COUNT = 128

# Source and target tokenizer, or the tokenizer and the labels of a classifier.
Tokenizers: TypeAlias = tuple[SubwordTokenizer, SubwordTokenizer | Labels]


class CachedSource(Source):
    """A data source whose ids are in a cache, so that its texts are not read."""

    splits: tuple[str, ...] = ()

    def __init__(self, name: str, splits: tuple[str, ...]):
        super().__init__(name)
        self.splits = splits

    def _read(self, split: str) -> Iterator[Pair]:
        raise ValueError(
            f"cache: expected that only ids are read, got a request for the texts of {self.name}, "
            f"split '{split}'."
        )


class DataCache:
    """The folder `cache` of `train`; without a folder, nothing is cached.

    It contains the ids of each split (`train/`, `validation/`), the vocabularies, the probes, and
    the recipe for which it was made. The recipe is written last: if it exists, the folder is
    complete, and the texts are not read again.
    """

    def __init__(self, folder: str | Path | None, recipe: Recipe):
        self.folder = None if folder is None else Path(folder)
        self.recipe = recipe
        if complete := self.complete_folder:
            earlier = Recipe.read(complete / bundle.RECIPE)
            changed = changed_values(recipe, earlier, FIELDS)
            if recipe.start is None and earlier.start is not None:
                changed.append(f"the vocabularies of {earlier.start}")
            if changed:
                raise ValueError(
                    f"cache: {complete} was made with {', '.join(changed)}; name another folder, "
                    "or remove this one."
                )

    @property
    def complete_folder(self) -> Path | None:
        """The folder if it contains everything that training needs."""
        complete = self.folder is not None and (self.folder / bundle.RECIPE).is_file()
        return self.folder if complete else None

    def check_tokenizers(self, tokenizers: Tokenizers) -> None:
        """Refuse a complete cache that was made with other tokenizers."""
        models = [tokenizer.model for tokenizer in tokenizers]
        cached = self.tokenizers()
        if cached and [tokenizer.model for tokenizer in cached] != models:
            raise ValueError(
                "cache: expected the tokenizers of the bundle that training starts from in "
                f"{self.folder}, got different tokenizers; name another folder, or remove this one."
            )

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which no other process writes the folder."""
        if self.folder is None or self.complete_folder:
            return contextlib.nullcontext()
        return lock(self.folder, "cache")

    def source(self, spec: str) -> Source:
        """Return the source of a data spec, without texts if only the cached ids are needed."""
        folder = self.complete_folder
        if folder is None or self.recipe.evaluate_every:  # BLEU needs the texts
            return datasets.load(spec)
        splits = ("train", "validation")
        return CachedSource(spec, tuple(split for split in splits if (folder / split).is_dir()))

    def tokenizers(self) -> Tokenizers | None:
        """Return the source and target tokenizers; None if the cache is not complete."""
        folder = self.complete_folder
        return None if folder is None else load_tokenizers(folder, self.recipe.architecture)

    def probes(self, batches: TokenBatches) -> list[str]:
        """Return the first source texts of the split of `batches`."""
        if (folder := self.complete_folder) is not None:
            return bundle.read_probes(folder / bundle.PROBES)
        pairs = itertools.islice(batches.data.pairs(batches.split), PROBE_COUNT)
        return [pair.source for pair in pairs]

    def complete(self, tokenizers: Tokenizers, probes: list[str]) -> None:
        """Write vocabularies, probes and recipe next to the ids, unless they exist."""
        if self.folder is None or self.complete_folder:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        bundle.write_probes(self.folder / bundle.PROBES, probes)
        save_tokenizers(self.folder, self.recipe, tokenizers)
        save_recipe(self.folder, self.recipe)


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
