"""A folder with all that training needs of its data: ids, vocabularies and probes, so that texts are read once."""

import itertools
from pathlib import Path

from tfk_transformer import datasets
from tfk_transformer.atomic_write import written_whole
from tfk_transformer.datasets import Source
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.recipe import Recipe

RECIPE, PROBES = "recipe.toml", "probes.txt"
TOKENIZERS = ("source.model", "target.model")
# What the ids depend on.
FIELDS = ("data validation_data max_length architecture tokenizer vocab_size separate_vocabularies byte_fallback subword_sampling").split()
PROBE_COUNT = 128


class PreparedSource(Source):
    """Stands in for data whose texts nobody reads any more, as their ids are in a cache."""

    def __init__(self, name: str, splits: tuple[str, ...]):
        super().__init__(name)
        self._splits = splits

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that are in the cache."""
        return self._splits

    def _read(self, split):
        raise ValueError(f"cache: expected no need of texts, got a question for those of {self.name}, split '{split}'.")


class Prepared:
    """The folder that `train` is given as `cache`.

    It has a cache of ids for each split, `train` and `validation`; the vocabularies; the probes; and the recipe it was made
    for, which is written last: with it, the folder is whole, and the data itself is not looked at any more.

    Args:
        folder: it; None: there is none.
        recipe: of the training.

    Raises:
        ValueError: if the folder was made for a recipe that gives other ids.
    """

    def __init__(self, folder, recipe: Recipe):
        self.folder = None if folder is None else Path(folder)
        self.recipe = recipe
        if self.is_whole:
            self._check()

    @property
    def is_whole(self) -> bool:
        """Whether all is there."""
        return self.folder is not None and (self.folder / RECIPE).is_file()

    def source(self) -> Source:
        """Return where pairs come from: the data, or what stands in for it; BLEU is measured on texts."""
        if not self.is_whole or self.recipe.evaluate_every:
            return datasets.load(self.recipe.data)
        return PreparedSource(self.recipe.data, self._splits())

    def validation_source(self) -> Source:
        """Return where the pairs come from that the recipe names apart for validation."""
        if not self.is_whole or self.recipe.evaluate_every:
            return datasets.load(self.recipe.validation_data)
        return PreparedSource(self.recipe.validation_data, self._splits())

    def ids(self, split: str) -> Path | None:
        """Return the folder for the ids of a split."""
        return None if self.folder is None else self.folder / split

    def tokenizers(self) -> tuple[SubwordTokenizer, SubwordTokenizer] | None:
        """Return those of source and target, if they are there."""
        if not self.is_whole:
            return None
        return tuple(SubwordTokenizer.load(self.folder / name) for name in TOKENIZERS)

    def probes(self, batches) -> list[str]:
        """Return some sources of the split that batches are made of."""
        if self.is_whole:
            return (self.folder / PROBES).read_text(encoding="utf-8").split("\n")[:-1]
        return [pair.source for pair in itertools.islice(batches.data.pairs(batches.split), PROBE_COUNT)]

    def complete(self, tokenizers, probes: list[str]) -> None:
        """Add to the ids what else there is, where it is missing."""
        if self.folder is None or self.is_whole:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for tokenizer, name in zip(tokenizers, TOKENIZERS, strict=True):
            tokenizer.save(self.folder / name)
        (self.folder / PROBES).write_text("".join(f"{text}\n" for text in probes), encoding="utf-8")
        with written_whole(self.folder / RECIPE) as new:
            new.write_text(self.recipe.to_toml(), encoding="utf-8")

    def _splits(self) -> tuple[str, ...]:
        return tuple(split for split in ("train", "validation") if (self.folder / split).is_dir())

    def _check(self) -> None:
        earlier = Recipe.read(self.folder / RECIPE)
        changed = [f"{name}={value!r}" for name in FIELDS if (value := getattr(earlier, name)) != getattr(self.recipe, name)]
        if changed:
            raise ValueError(f"cache: {self.folder} was made with {', '.join(changed)}; name another folder, or remove it.")
