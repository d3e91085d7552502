"""What a recipe trains on: vocabularies, and the batches of the training and validation splits."""

from pathlib import Path

import keras

from tfk_transformer.data.batches import JoinedBatches, TokenBatches
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.data_cache import TOKENIZERS, Prepared
from tfk_transformer.training.recipe import Recipe


def vocabularies(recipe: Recipe, data, work: Path, prepared: Prepared) -> tuple[SubwordTokenizer, SubwordTokenizer]:
    """Learn the vocabularies from the training split, or take them from the training that is resumed, or from the cache."""
    if all((work / name).is_file() for name in TOKENIZERS):
        source, target = (SubwordTokenizer.load(work / name) for name in TOKENIZERS)
        return source, target
    if known := prepared.tokenizers():
        return known

    def learn(*sides):
        texts = (pair[side] for pair in data.pairs("train") for side in sides)
        return SubwordTokenizer.train(texts, recipe.vocab_size, recipe.tokenizer, recipe.byte_fallback)

    if recipe.separate_vocabularies:
        return learn(0), learn(1)
    joint = learn(0, 1)
    return joint, joint


def batches(recipe: Recipe, data, split: str, tokenizers, shuffle=False, **more) -> TokenBatches:
    """Return the batches of a split; `more` are options of `TokenBatches`."""
    kind = JoinedBatches if recipe.architecture == "decoder" else TokenBatches
    return kind(data, split, *tokenizers, recipe.batch_tokens, recipe.max_length, shuffle, recipe.seed, **more)


def validation_batches(recipe: Recipe, data, tokenizers, prepared: Prepared, **more) -> TokenBatches | None:
    """Return the batches to validate with, None if there are no pairs for it; `more` are options of `TokenBatches`."""
    more["cache"] = prepared.ids("validation")
    if recipe.validation_data:
        return batches(recipe, prepared.validation_source(), "validation", tokenizers, **more)
    # Pairs given as two files are the training pairs whatever split is asked for, and validate nothing.
    separate = "validation" in data.splits and not recipe.data.startswith("files:")
    return batches(recipe, data, "validation", tokenizers, **more) if separate else None


def check_measures(recipe: Recipe, validation: TokenBatches | None) -> None:
    """Refuse to choose by figures that will not be there."""
    wanted = {"evaluate_every": recipe.evaluate_every, "patience": recipe.patience, "average_of='best'": recipe.average_of == "best"}
    needing = [name for name, needs in wanted.items() if needs]
    if needing and validation is None:
        raise ValueError(f"validation_data: expected pairs for {', '.join(needing)}, got none; {recipe.data} has no validation split.")
    if recipe.evaluate_every and keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"evaluate_every: expected 0 under the {keras.backend.backend()} backend, got {recipe.evaluate_every}; search is TensorFlow's."
        )
