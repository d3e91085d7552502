"""Everything that a training run reads: tokenizers, batches of the training and validation splits,
and probes.
"""

import contextlib
import hashlib
from pathlib import Path
from typing import NamedTuple, TypedDict

import keras

from tfk_transformer.data.batch_records import Share
from tfk_transformer.data.batches import JoinedBatches, TokenBatches
from tfk_transformer.data.labels import LabelledBatches, Labels
from tfk_transformer.datasets import Source
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
from tfk_transformer.training.recipe import Recipe

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
        """The batches of the training split, and of the validation split if there is one."""
        return [self.batches] if self.validation is None else [self.batches, self.validation]

    @property
    def tokens_per_epoch(self) -> float:
        """The number of tokens in an epoch by which the speed is measured."""
        found = self.batches.survey()
        return found.trained_tokens * len(self.batches) / found.steps

    def vocabulary_line(self) -> str:
        """Return the sizes of the vocabularies, such as "8,000 subwords"."""
        source, target = self.tokenizers
        if isinstance(target, Labels):
            return f"{source.vocab_size:,} subwords, {target.vocab_size:,} labels"
        sizes = [source] if target is source else [source, target]
        return f"{' and '.join(f'{tokenizer.vocab_size:,}' for tokenizer in sizes)} subwords"

    def lines(self) -> list[str]:
        """Return lines about the size of each split and the dropped pairs."""
        lines = []
        for part in self.parts:
            found = part.survey()
            kind = "pairs, {:,} target" if found.target_tokens else "texts, {:,}"
            counts = (
                f"{found.pairs:,} {kind.format(found.trained_tokens)} tokens, "
                f"{found.steps:,} batches, {found.padding:.1%} padding"
            )
            lines += [f"{part.split}: {line}" for line in (counts, *found.report.lines())]
        return lines

    def facts(self) -> dict[str, object]:
        """Return the facts that must be equal in all processes of a training run."""
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
    known: Tokenizers | None = None,
) -> TrainingData:
    """Return the data of a training run, read from the texts or from a cache.

    Args:
        recipe: the recipe of the training run.
        team: the devices that train. Its first process learns the vocabularies for all.
        work: folder of the unfinished training run; the vocabularies in it are used if there are
            any.
        cache: folder that keeps the data; see `train`.
        known: the tokenizers of the bundle that the training run starts from. None: a new model.

    Raises:
        ValueError: for bad data, a cache of other data or tokenizers, or a recipe that needs
            validation pairs if there are none.
    """
    folder = DataCache(cache, recipe)
    source = folder.source(recipe.data)
    if known:
        folder.check_tokenizers(known)
    tokenizers = known or _shared_tokenizers(recipe, source, team, work, folder)
    # The first process makes the cache, the others find it.
    with team.in_turn() if cache else contextlib.nullcontext():
        batches = _training_batches(recipe, source, tokenizers, folder, team)
        validation = _validation_batches(recipe, source, tokenizers, folder, team)
        _check_measures(recipe, validation)
        for part in filter(None, (validation, batches)):
            part.survey()
        probes = folder.probes(validation or batches)
        folder.complete(tokenizers, probes)
    return TrainingData(tokenizers, batches, validation, probes)


def _shared_tokenizers(
    recipe: Recipe, source: Source, team: Team, work: Path, cache: DataCache
) -> Tokenizers:
    """Return the tokenizers, which the first process finds or learns, in all processes."""
    models = (b"", b"")
    if team.leads:
        known = load_tokenizers(work, recipe) if _in(work, recipe) else cache.tokenizers()
        first, second = known or _learned_tokenizers(recipe, source)
        models = (first.model, second.model)
    (kind, other_kind), shared = tokenizer_types(recipe), [team.of_first(model) for model in models]
    tokenizer = kind(shared[0])
    joint = recipe.architecture != "encoder" and not recipe.separate_vocabularies
    return tokenizer, tokenizer if joint else other_kind(shared[1])


def _in(work: Path, recipe: Recipe) -> bool:
    return all((work / name).is_file() for name in tokenizer_files(recipe))


def _learned_tokenizers(recipe: Recipe, source: Source) -> Tokenizers:
    """Learn the vocabularies from the training split."""

    def learned(*sides: int) -> SubwordTokenizer:
        texts = (pair[side] for pair in source.pairs("train") for side in sides)
        return SubwordTokenizer.train(
            texts, recipe.vocab_size, recipe.tokenizer, recipe.byte_fallback
        )

    if recipe.architecture == "encoder":
        labels = Labels.of(pair.target for pair in source.pairs("train"))
        return learned(0), labels
    if recipe.separate_vocabularies:
        return learned(0), learned(1)
    joint = learned(0, 1)
    return joint, joint


class _Layout(TypedDict):
    """Options of the batches of both splits."""

    few_shapes: bool
    share: Share
    copies: int


def _layout(recipe: Recipe, team: Team) -> _Layout:
    # XLA compiles a function for each shape of a batch.
    few_shapes = has_gpu() or keras.backend.backend() != "tensorflow"
    return {"few_shapes": few_shapes, "share": team.share, "copies": 2 if recipe.consistency else 1}


def _training_batches(
    recipe: Recipe, source: Source, tokenizers: Tokenizers, cache: DataCache, team: Team
) -> TokenBatches:
    return BATCHES[recipe.architecture](
        source,
        "train",
        *tokenizers,
        recipe.batch_tokens,
        recipe.max_length,
        shuffle=True,
        seed=recipe.seed,
        sampling=recipe.subword_sampling,
        cache=cache.ids("train"),
        steps=recipe.epoch_steps,
        **_layout(recipe, team),
    )


def _validation_batches(
    recipe: Recipe, source: Source, tokenizers: Tokenizers, cache: DataCache, team: Team
) -> TokenBatches | None:
    """Return the batches to validate on; None if there are no pairs for it."""
    if recipe.validation_data:
        source = cache.source(recipe.validation_data)
    # `files:` has the same pairs in every split, which were trained on.
    elif "validation" not in source.splits or recipe.data.startswith("files:"):
        return None
    return BATCHES[recipe.architecture](
        source,
        "validation",
        *tokenizers,
        recipe.batch_tokens,
        recipe.max_length,
        seed=recipe.seed,
        cache=cache.ids("validation"),
        **_layout(recipe, team),
    )


def _check_measures(recipe: Recipe, validation: TokenBatches | None) -> None:
    """Refuse a recipe that needs metrics that cannot be measured."""
    wanted = {
        "evaluate_every": recipe.evaluate_every,
        "patience": recipe.patience,
        "average_of='best'": recipe.average_of == "best",
    }
    needing = [name for name, needs in wanted.items() if needs]
    if needing and validation is None:
        raise ValueError(
            f"validation_data: expected pairs for {', '.join(needing)}, got none; {recipe.data} "
            "has no validation split."
        )
    if recipe.evaluate_every and keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"evaluate_every: expected 0 under the {keras.backend.backend()} backend, got "
            f"{recipe.evaluate_every}; "
            "search requires TensorFlow."
        )
