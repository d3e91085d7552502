"""The input of a training run: tokenizers, training and validation batches, and probes."""

import contextlib
import hashlib
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import keras

from tfk_transformer.data.batches import JoinedBatches, TokenBatches
from tfk_transformer.data.labels import LabelledBatches, Labels
from tfk_transformer.datasets import Source
from tfk_transformer.pipelines.recipe import Recipe
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.compilation import has_gpu
from tfk_transformer.training.data_cache import (
    DataCache,
    Tokenizers,
    load_tokenizers,
    tokenizer_files,
    tokenizer_types,
)
from tfk_transformer.training.distribution import Team

BATCHES: dict[str, type[TokenBatches]] = {
    "encoder_decoder": TokenBatches,
    "decoder": JoinedBatches,
    "encoder": LabelledBatches,
}


class TrainingData(NamedTuple):
    """The data of a training run."""

    tokenizers: Tokenizers
    batches: TokenBatches
    validation: TokenBatches | None
    probes: list[str]  # source texts on which exports are compared with the model

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
        lines = []
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
        vocabularies = [
            hashlib.sha256(tokenizer.model).hexdigest()[:8] for tokenizer in self.tokenizers
        ]
        return {
            "vocabularies": vocabularies,
            "data": [part and part.survey()[:5] for part in (self.batches, self.validation)],
        }


def prepare_data(
    recipe: Recipe,
    team: Team,
    work: Path,
    cache: str | Path | None = None,
    start_tokenizers: Tokenizers | None = None,
) -> TrainingData:
    """Return the data of a training run, read from the texts or from a cache.

    Args:
        recipe: the recipe of the training run.
        team: the devices that train. Its first process learns the vocabularies for all.
        work: folder of the unfinished training run. Its vocabularies are used if they exist.
        cache: folder for the encoded data; see `train`.
        start_tokenizers: the tokenizers of the bundle that the training run starts from. None: a
            new model.

    Raises:
        ValueError: for bad data, a cache of other data or tokenizers or that another run is
            writing, or a recipe that needs validation pairs where there are none.
    """
    folder = DataCache(cache, recipe)
    # The first process writes the cache before the other processes read it.
    with folder.locked() if team.leads else contextlib.nullcontext():
        return _prepare(recipe, team, work, folder, start_tokenizers)


def _prepare(
    recipe: Recipe,
    team: Team,
    work: Path,
    folder: DataCache,
    start_tokenizers: Tokenizers | None,
) -> TrainingData:
    source = folder.source(recipe.data)
    if start_tokenizers:
        folder.check_tokenizers(start_tokenizers)
    tokenizers = start_tokenizers or _shared_tokenizers(recipe, source, team, work, folder)
    with team.in_turn() if folder.folder else contextlib.nullcontext():
        batches = _batches(
            recipe,
            source,
            "train",
            tokenizers,
            folder,
            team,
            shuffle=True,
            sampling=recipe.subword_sampling,
            steps=recipe.epoch_steps,
        )
        validation_source = _validation_source(recipe, source, folder)
        validation = (
            _batches(recipe, validation_source, "validation", tokenizers, folder, team)
            if validation_source
            else None
        )
        _check_metrics(recipe, validation)
        for part in filter(None, (validation, batches)):
            part.survey()
        probes = folder.probes(validation or batches)
        folder.complete(tokenizers, probes)
    return TrainingData(tokenizers, batches, validation, probes)


def _shared_tokenizers(
    recipe: Recipe, source: Source, team: Team, work: Path, cache: DataCache
) -> Tokenizers:
    """Load or learn the tokenizers in the first process, and return them in all processes."""
    models = (b"", b"")
    if team.leads:
        saved = all((work / name).is_file() for name in tokenizer_files(recipe))
        tokenizers = load_tokenizers(work, recipe) if saved else cache.tokenizers()
        first, second = tokenizers or _learn_tokenizers(recipe, source)
        models = (first.model, second.model)
    source_model, target_model = (team.broadcast(model) for model in models)
    source_type, target_type = tokenizer_types(recipe)
    tokenizer = source_type(source_model)
    joint = recipe.architecture != "encoder" and not recipe.separate_vocabularies
    return tokenizer, tokenizer if joint else target_type(target_model)


def _learn_tokenizers(recipe: Recipe, source: Source) -> Tokenizers:
    """Learn the vocabularies from the training split."""

    def learn(*sides: int) -> SubwordTokenizer:
        rows = ([pair[side] for side in sides] for pair in source.pairs("train"))
        texts = itertools.chain.from_iterable(rows)
        return SubwordTokenizer.train(
            texts, recipe.vocab_size, recipe.tokenizer, recipe.byte_fallback
        )

    if recipe.architecture == "encoder":
        labels = Labels.of(pair.target for pair in source.pairs("train"))
        return learn(0), labels
    if recipe.separate_vocabularies:
        return learn(0), learn(1)
    joint = learn(0, 1)
    return joint, joint


def _validation_source(recipe: Recipe, source: Source, cache: DataCache) -> Source | None:
    """Return the source of the validation pairs; None if there are none."""
    if recipe.validation_data:
        return cache.source(recipe.validation_data)
    # `files:` has the training pairs in every split.
    if "validation" not in source.splits or recipe.data.startswith("files:"):
        return None
    return source


def _batches(
    recipe: Recipe,
    source: Source,
    split: str,
    tokenizers: Tokenizers,
    cache: DataCache,
    team: Team,
    **options: Any,
) -> TokenBatches:
    return BATCHES[recipe.architecture](
        source,
        split,
        *tokenizers,
        recipe.batch_tokens,
        recipe.max_length,
        seed=recipe.seed,
        cache=cache.ids(split),
        # XLA compiles a function for each batch shape.
        few_shapes=has_gpu() or keras.backend.backend() != "tensorflow",
        share=team.share,
        copies=2 if recipe.consistency else 1,
        **options,
    )


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
