"""The classes of models and configurations, by the name of their architecture."""

from typing import TYPE_CHECKING, Any, TypeAlias

from tfk_transformer.config.model_options import (
    ClassifierConfig,
    EnsembleConfig,
    LanguageModelConfig,
    TransformerConfig,
)
from tfk_transformer.config.small_files import parse_json_object

if TYPE_CHECKING:
    from tfk_transformer.models.classifier import EncoderClassifier
    from tfk_transformer.models.token_model import TokenModel

ModelConfig: TypeAlias = TransformerConfig | LanguageModelConfig | ClassifierConfig | EnsembleConfig

# The architectures that a recipe can train.
TRAINED: dict[str, type[TransformerConfig | LanguageModelConfig | ClassifierConfig]] = {
    "encoder_decoder": TransformerConfig,
    "decoder": LanguageModelConfig,
    "encoder": ClassifierConfig,
}
CONFIGS: dict[str, type[ModelConfig]] = {**TRAINED, "ensemble": EnsembleConfig}


def config_from_json(text: str | bytes) -> ModelConfig:
    """Return the configuration that `to_json` wrote, of the class of its `architecture`.

    Raises:
        ValueError: if the text is not a configuration.
    """
    architecture = parse_json_object(text, "configuration").get("architecture")
    # The default class reports an unknown architecture.
    return CONFIGS.get(str(architecture), TransformerConfig).from_json(text)


def stock_type(config: ModelConfig) -> "type[TokenModel | EncoderClassifier]":
    """Return the library's own class of models with a configuration."""
    from tfk_transformer.models.classifier import EncoderClassifier
    from tfk_transformer.models.ensemble import Ensemble
    from tfk_transformer.models.language_model import LanguageModel
    from tfk_transformer.models.transformer import Transformer

    types: dict[str, type[TokenModel | EncoderClassifier]] = {
        "encoder_decoder": Transformer,
        "decoder": LanguageModel,
        "encoder": EncoderClassifier,
        "ensemble": Ensemble,
    }
    return types[config.architecture]


def make_model(config: ModelConfig, **kwargs: Any) -> "TokenModel | EncoderClassifier":
    """Return a built model of the library's own class; `kwargs` are its arguments."""
    model = stock_type(config)(config, **kwargs)  # type: ignore[arg-type]
    model.build()
    return model
