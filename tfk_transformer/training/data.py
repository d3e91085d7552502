"""The input of a training run: tokenizers, batches and probes, and a folder that caches them."""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras

from tfk_transformer import datasets
from tfk_transformer.atomic_write import lock, replace_text
from tfk_transformer.config.small_files import read_json_object
from tfk_transformer.data.batches import JoinedBatches, TokenBatches
from tfk_transformer.data.labels import LabelledBatches, Labels
from tfk_transformer.datasets import Pair, Source
from tfk_transformer.pipelines import bundle
from tfk_transformer.pipelines.bundle import Json
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training import checkpoints
from tfk_transformer.training.checkpoints import Tokenizers
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.fine_tuning import Start
from tfk_transformer.training.recipe import Recipe, changed_values

BATCHES: dict[str, type[TokenBatches]] = {
    "encoder_decoder": TokenBatches,
    "decoder": JoinedBatches,
    "encoder": LabelledBatches,
}

# The fields of a recipe on which the ids depend.
FIELDS = (
    "data validation_data max_length architecture tokenizer vocab_size separate_vocabularies "
    "byte_fallback subword_sampling source_tokens target_tokens"
).split()
PROBE_COUNT = 128
DIGESTS = "data.json"  # the hashes of the training and validation data, by split


class TrainingData:
    """The tokenizers, batches and probes of a training run, read from the texts or from a cache.

    The vocabularies are those of the bundle `start`, of the folder `work` of the unfinished run or
    of the cache. If there are none, the first process of the team learns them for all. `sources`
    are data in memory, by the names that the recipe has for them.
    """

    def __init__(
        self,
        recipe: Recipe,
        team: Team,
        work: Path,
        cache: str | Path | None = None,
        start: Start | None = None,
        sources: Mapping[str, Source] | None = None,
    ):
        self._recipe = recipe
        self._team = team
        self._cache = DataCache(cache, recipe, sources)
        # The first process writes the cache before the other processes read it.
        with self._cache.locked() if team.leads else contextlib.nullcontext():
            source = self._cache.source(recipe.data)
            # With other validation data, nothing is left out of the training pairs.
            source = source.undivided() if recipe.validation_data else source
            self.digests = self._cache.digests() if team.leads else {}
            check_digests(work, self.digests, "resume")
            if start:
                self._cache.check_tokenizers(start.tokenizers)
            self.tokenizers = start.tokenizers if start else self._shared_tokenizers(source, work)
            with team.in_turn() if self._cache.folder else contextlib.nullcontext():
                self._prepare_batches(source)

    def _shared_tokenizers(self, source: Source, work: Path) -> Tokenizers:
        """Load or learn the tokenizers in the first process, and return them in all processes."""
        recipe = self._recipe
        target_file, target_class = checkpoints.target_side(recipe.architecture)
        models = (b"", b"")
        if self._team.leads:
            if all((work / name).is_file() for name in (bundle.SOURCE_TOKENIZER, target_file)):
                first, second = checkpoints.load_tokenizers(work, recipe.architecture)
            else:
                first, second = self._cache.tokenizers() or _learn_tokenizers(recipe, source)
            models = (first.model, second.model)
        source_model, target_model = map(self._team.broadcast, models)
        tokenizer = SubwordTokenizer(source_model)
        joint = not recipe.classifies and not recipe.separate_vocabularies
        return tokenizer, tokenizer if joint else target_class(target_model)

    def _prepare_batches(self, source: Source) -> None:
        recipe = self._recipe
        self.batches = self._batches(
            source,
            "train",
            shuffle=True,
            sampling=recipe.subword_sampling,
            steps=recipe.epoch_steps,
        )
        self.validation: TokenBatches | None = None
        if recipe.validation_data:
            source = self._cache.source(recipe.validation_data).undivided()
            self.validation = self._batches(source, "validation")
        # `files:` has the training pairs in every split.
        elif "validation" in source.splits and not recipe.data.startswith("files:"):
            self.validation = self._batches(source, "validation")
        _check_metrics(recipe, self.validation)
        for part in reversed(self.parts):
            part.survey()
        self.probes = self._cache.probes(self.validation or self.batches)
        self._cache.complete(self.tokenizers, self.probes, self.digests)

    def _batches(self, source: Source, split: str, **options: Any) -> TokenBatches:
        recipe = self._recipe
        return BATCHES[recipe.architecture](
            source,
            split,
            *self.tokenizers,
            recipe.batch_tokens,
            recipe.max_length,
            seed=recipe.seed,
            cache=self._cache.folder and self._cache.folder / split,
            share=self._team.share,
            copies=2 if recipe.consistency else 1,
            **options,
        )

    @property
    def parts(self) -> list[TokenBatches]:
        """The batches of the training split, and of the validation split if it exists."""
        return [self.batches] if self.validation is None else [self.batches, self.validation]

    @property
    def tokens_per_epoch(self) -> float:
        """The number of tokens in an epoch, from which the speed is computed."""
        survey = self.batches.survey()
        return survey.trained_tokens * len(self.batches) / survey.steps

    def vocabulary_line(self) -> str:
        """Return the sizes of the vocabularies, such as "8,000 subwords"."""
        source, target = self.tokenizers
        if isinstance(target, Labels):
            return f"{source.vocab_size:,} subwords, {target.vocab_size:,} labels"
        tokenizers = [source] if target is source else [source, target]
        sizes = " and ".join(f"{tokenizer.vocab_size:,}" for tokenizer in tokenizers)
        return f"{sizes} subwords"

    def lines(self) -> list[str]:
        """Return lines about the size of each split and the dropped pairs."""
        lines = [note] if (note := self.batches.data.note) else []
        for part in self.parts:
            survey = part.survey()
            examples = "pairs, {:,} target" if survey.target_tokens else "texts, {:,}"
            counts = (
                f"{survey.pairs:,} {examples.format(survey.trained_tokens)} tokens, "
                f"{survey.steps:,} batches, {survey.padding:.1%} padding"
            )
            lines += [f"{part.split}: {line}" for line in (counts, *survey.report.lines())]
        return lines

    def facts(self) -> dict[str, object]:
        """Return the values that must be equal in all processes of a training run."""
        models = [hashlib.sha256(tokenizer.model).hexdigest() for tokenizer in self.tokenizers]
        return {
            "vocabularies": [model[:8] for model in models],
            "data": [part and part.survey()[:5] for part in (self.batches, self.validation)],
        }


def read_digests(folder: Path) -> Json:
    """Return the hashes of the data from which a folder was made, by split."""
    file = folder / DIGESTS
    return read_json_object(file) if file.is_file() else {}


def check_digests(folder: Path, digests: Json, argument: str) -> None:
    """Refuse data that differ from those from which a folder was made.

    Without a hash, the texts are gone, or an earlier version wrote the folder.
    """
    earlier = read_digests(folder)
    known = [split for split in earlier if earlier[split] and digests.get(split)]
    changed = [split for split in known if earlier[split] != digests[split]]
    if changed:
        raise ValueError(
            f"{argument}: expected the data that {folder} was made with, got other texts for "
            f"{' and '.join(changed)}; restore them, or remove the folder to start again."
        )


def save_digests(folder: Path, digests: Json) -> None:
    """Write the hashes of the data into a folder, for `check_digests`."""
    replace_text(folder / DIGESTS, json.dumps(digests, indent=2) + "\n")


def _learn_tokenizers(recipe: Recipe, source: Source) -> Tokenizers:
    """Learn the vocabularies from the training split."""

    def learn(*sides: int) -> SubwordTokenizer:
        rows = ([pair[side] for side in sides] for pair in source.pairs("train"))
        texts = itertools.chain.from_iterable(rows)
        tokens = recipe.token_rules[sides[0]]
        return SubwordTokenizer.train(
            texts, recipe.vocab_size, recipe.tokenizer, recipe.byte_fallback, tokens
        )

    if recipe.classifies:
        labels = Labels.of(pair.target for pair in source.pairs("train"))
        return learn(0), labels
    if recipe.separate_vocabularies:
        return learn(0), learn(1)
    joint = learn(0, 1)
    return joint, joint


def _check_metrics(recipe: Recipe, validation: TokenBatches | None) -> None:
    """Refuse a recipe that needs metrics that cannot be measured."""
    uses_validation = {
        "evaluate_every": recipe.evaluate_every,
        "patience": recipe.patience,
        "average_of='best'": recipe.average_of == "best",
    }
    names = [name for name, value in uses_validation.items() if value]
    if names and validation is None:
        raise ValueError(
            f"validation_data: expected pairs for {', '.join(names)}, got none; {recipe.data} "
            "has no validation split."
        )
    if recipe.evaluate_every and keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"evaluate_every: expected 0 under the {keras.backend.backend()} backend, got "
            f"{recipe.evaluate_every}; search requires TensorFlow."
        )


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

    def __init__(
        self,
        folder: str | Path | None,
        recipe: Recipe,
        sources: Mapping[str, Source] | None = None,
    ):
        self.folder = None if folder is None else Path(folder)
        self.recipe = recipe
        self._sources = sources or {}
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
            return self._load(spec)
        splits = ("train", "validation")
        return CachedSource(spec, tuple(split for split in splits if (folder / split).is_dir()))

    def _load(self, spec: str) -> Source:
        return datasets.load(self._sources.get(spec, spec))

    def digests(self) -> Json:
        """Return the hashes of the training and the validation data.

        Texts that have changed since their ids were cached are refused. Texts that are gone are not
        needed.
        """
        recipe, folder = self.recipe, self.complete_folder
        specs = {"train": recipe.data, "validation": recipe.validation_data or recipe.data}
        digests = dict(read_digests(folder)) if folder else {}
        gone = (ValueError, ImportError, OSError) if folder else ()
        for split, spec in specs.items():
            with contextlib.suppress(*gone):
                digests[split] = self._load(spec).digest(split) or digests.get(split, "")
        if folder:
            check_digests(folder, digests, "cache")
        return digests

    def tokenizers(self) -> Tokenizers | None:
        """Return the source and target tokenizers; None if the cache is not complete."""
        if (folder := self.complete_folder) is None:
            return None
        return checkpoints.load_tokenizers(folder, self.recipe.architecture)

    def probes(self, batches: TokenBatches) -> list[str]:
        """Return the first source texts of the split of `batches`."""
        if (folder := self.complete_folder) is not None:
            return bundle.read_probes(folder / bundle.PROBES)
        pairs = itertools.islice(batches.data.pairs(batches.split), PROBE_COUNT)
        return [pair.source for pair in pairs]

    def complete(self, tokenizers: Tokenizers, probes: list[str], digests: Json) -> None:
        """Write vocabularies, probes, hashes and recipe next to the ids, unless they exist."""
        if self.folder is None or self.complete_folder:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        bundle.write_probes(self.folder / bundle.PROBES, probes)
        save_digests(self.folder, digests)
        checkpoints.save_tokenizers(self.folder, self.recipe, tokenizers)
        checkpoints.save_recipe(self.folder, self.recipe)
