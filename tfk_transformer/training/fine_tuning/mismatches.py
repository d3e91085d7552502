"""Compare the explicit values of a recipe with the model that a training run starts from."""

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
    from tfk_transformer.pipelines.recipe import Recipe

DROPOUT = "dropout"  # suffix of the options that do not affect the weights

SingleConfig: TypeAlias = TransformerConfig | LanguageModelConfig | ClassifierConfig
Tokenizers: TypeAlias = tuple[SubwordTokenizer, SubwordTokenizer | Labels]


def mismatches(
    recipe: "Recipe", config: SingleConfig, tokenizers: Tokenizers, earlier: Mapping[str, Any]
) -> Iterator[str]:
    """Describe every explicit value of a recipe that differs from the bundle's.

    Defaults and dropout rates never count as different.

    Args:
        recipe: the recipe of the training run.
        config: the configuration of the bundle.
        tokenizers: the tokenizers of the bundle, or its tokenizer and labels.
        earlier: the values of the bundle's recipe. They always fit: the vocabulary, for example,
            may be smaller than its `vocab_size`.
    """
    explicit = recipe.model_fields_set
    subwords = [tokenizer for tokenizer in tokenizers if isinstance(tokenizer, SubwordTokenizer)]
    accepted_values: dict[str, list[Any]] = {  # two sides can have two values
        "architecture": [config.architecture],
        "tokenizer": sorted({tokenizer.model_type for tokenizer in subwords}),
        "vocab_size": sorted({tokenizer.vocab_size for tokenizer in subwords}),
        "separate_vocabularies": [are_separate(config, tokenizers)],
        "byte_fallback": sorted({tokenizer.byte_fallback for tokenizer in subwords}),
    }
    for name, accepted in accepted_values.items():
        value = getattr(recipe, name)
        if name in explicit and value not in accepted and value != earlier.get(name):
            yield f"{name} {value!r} for {' and '.join(map(repr, accepted))}"
    if "max_length" in explicit and recipe.max_length > config.max_length:
        yield f"max_length {recipe.max_length:,} for at most {config.max_length:,}"
    if recipe.consistency and (output := getattr(config, "output", "logits")) != "logits":
        yield f"consistency {recipe.consistency:g} for a model whose output is '{output}'"
    preset = PRESETS[recipe.preset] if "preset" in explicit else {}
    yield from _option_mismatches(config, preset, recipe.options)


def are_separate(config: SingleConfig, tokenizers: Tokenizers) -> bool:
    """Return whether source and target have different tokenizers."""
    source, target = tokenizers
    return config.architecture == "encoder_decoder" and target is not source


def _option_mismatches(
    config: SingleConfig, preset: Mapping[str, Any], options: Mapping[str, Any]
) -> Iterator[str]:
    """Describe the options, from a preset or by name, that differ from the bundle's."""
    fields = type(config).model_fields
    values = {
        **config.model_dump(mode="json"),
        "ff_dim": config.ff_width,
        "key_dim": config.query_width,
        "value_dim": config.value_width,
    }
    preset_options = {name: value for name, value in preset.items() if name in fields}
    for name, value in {**preset_options, **options}.items():
        if name not in fields:
            yield f"unknown option '{name}'.{nearest(name, fields)}"
        elif (
            not name.endswith(DROPOUT)
            and value != values[name]
            and not _is_equivalent(config, name, value)
        ):
            yield f"{name} {value!r} for {values[name]!r}"


def _is_equivalent(config: SingleConfig, name: str, value: object) -> bool:
    """Return whether a value only differs in notation, as `attention_bias=True` may."""
    try:
        return bool(getattr(config.replace(**{name: value}), name) == getattr(config, name))
    except ValueError:  # a value that does not suit the other options
        return False
