"""Compare the values of a recipe that were given with the model that a training run starts from."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tfk_transformer.config.model_options import (
    ClassifierConfig,
    LanguageModelConfig,
    TransformerConfig,
)
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.words import nearest
from tfk_transformer.data.labels import Labels
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

if TYPE_CHECKING:
    from tfk_transformer.training.recipe import Recipe

DROPOUT = "dropout"  # the end of the names of options that change no weights

SingleConfig: TypeAlias = TransformerConfig | LanguageModelConfig | ClassifierConfig
Tokenizers: TypeAlias = tuple[SubwordTokenizer, SubwordTokenizer | Labels]


def mismatches(
    recipe: "Recipe", config: SingleConfig, tokenizers: Tokenizers, own: Mapping[str, Any]
) -> Iterator[str]:
    """Describe every value that was given and is not that of the bundle. Defaults and dropout rates
    never differ.

    Args:
        recipe: the recipe of the training run.
        config: the configuration of the bundle.
        tokenizers: its tokenizers, or its tokenizer and labels.
        own: the values of its own recipe, which fit even where the texts gave a smaller vocabulary.
    """
    given = recipe.model_fields_set
    for name, facts in _facts(config, tokenizers).items():
        value = getattr(recipe, name)
        if name in given and value not in facts and value != own.get(name):
            yield f"{name} {value!r} for {' and '.join(map(repr, facts))}"
    if "max_length" in given and recipe.max_length > config.max_length:
        yield f"max_length {recipe.max_length:,} for at most {config.max_length:,}"
    if recipe.consistency and (output := getattr(config, "output", "logits")) != "logits":
        yield f"consistency {recipe.consistency:g} for a model whose output is '{output}'"
    preset = PRESETS[recipe.preset] if "preset" in given else {}
    yield from _other_options(config, preset, recipe.options)


def are_separate(config: SingleConfig, tokenizers: Tokenizers) -> bool:
    """Return whether each side has a tokenizer of its own."""
    source, target = tokenizers
    return config.architecture == "encoder_decoder" and target is not source


def _facts(config: SingleConfig, tokenizers: Tokenizers) -> dict[str, list[Any]]:
    """Return values of recipes that the bundle decides; two sides can have two values."""
    subwords = [tokenizer for tokenizer in tokenizers if isinstance(tokenizer, SubwordTokenizer)]
    return {
        "architecture": [config.architecture],
        "tokenizer": sorted({tokenizer.model_type for tokenizer in subwords}),
        "vocab_size": sorted({tokenizer.vocab_size for tokenizer in subwords}),
        "separate_vocabularies": [are_separate(config, tokenizers)],
        "byte_fallback": sorted({tokenizer.byte_fallback for tokenizer in subwords}),
    }


def _other_options(
    config: SingleConfig, preset: Mapping[str, Any], options: Mapping[str, Any]
) -> Iterator[str]:
    """Describe the options of the model, given by a preset or by name, that are not those of the
    bundle.
    """
    known = type(config).model_fields
    values = {
        **config.model_dump(mode="json"),
        "ff_dim": config.ff_width,
        "key_dim": config.query_width,
        "value_dim": config.value_width,
    }
    for name, value in {
        **{name: value for name, value in preset.items() if name in known},
        **options,
    }.items():
        if name not in known:
            yield f"unknown option '{name}'.{nearest(name, known)}"
        elif (
            not name.endswith(DROPOUT)
            and value != values[name]
            and not _means_the_same(config, name, value)
        ):
            yield f"{name} {value!r} for {values[name]!r}"


def _means_the_same(config: SingleConfig, name: str, value: object) -> bool:
    """Return whether a value is another way to write that of a configuration, as
    `attention_bias=True` is.
    """
    try:
        return bool(getattr(config.replace(**{name: value}), name) == getattr(config, name))
    except ValueError:  # a value that does not suit the other options
        return False
