"""The kinds of models, by the name of the architecture in their configurations."""

from typing import TYPE_CHECKING, Any, TypeAlias

from tfk_transformer.config.json_text import parsed_object
from tfk_transformer.config.model_options import (
    ClassifierConfig,
    EnsembleConfig,
    LanguageModelConfig,
    TransformerConfig,
)

if TYPE_CHECKING:
    from tfk_transformer.models.base import TokenModel
    from tfk_transformer.models.classifier import Classifier

ModelConfig: TypeAlias = TransformerConfig | LanguageModelConfig | ClassifierConfig | EnsembleConfig

# From a recipe.
TRAINED: dict[str, type[TransformerConfig | LanguageModelConfig | ClassifierConfig]] = {
    "encoder_decoder": TransformerConfig,
    "decoder": LanguageModelConfig,
    "encoder": ClassifierConfig,
}
CONFIGS: dict[str, type[ModelConfig]] = {**TRAINED, "ensemble": EnsembleConfig}


def config_from_json(text: str | bytes) -> ModelConfig:
    """Return the configuration that `to_json` wrote, of the class that its key `architecture`
    names.

    Args:
        text: JSON, or its UTF-8 encoding.

    Raises:
        ValueError: if the text is not a configuration.
    """
    architecture = parsed_object(text, "configuration").get("architecture")
    # For an unknown architecture, the record of the default one names the problem.
    kind = (
        CONFIGS.get(architecture, TransformerConfig)
        if isinstance(architecture, str)
        else TransformerConfig
    )
    return kind.from_json(text)


def make_model(config: ModelConfig, **kwargs: Any) -> "TokenModel | Classifier":
    """Return a built model.

    Args:
        config: the configuration, of one of the classes in `CONFIGS`.
        **kwargs: arguments of the model.
    """
    from tfk_transformer.models.classifier import Classifier
    from tfk_transformer.models.ensemble import Ensemble
    from tfk_transformer.models.language_model import LanguageModel
    from tfk_transformer.models.transformer import Transformer

    kinds: dict[str, Any] = {
        "encoder_decoder": Transformer,
        "decoder": LanguageModel,
        "encoder": Classifier,
        "ensemble": Ensemble,
    }
    model: TokenModel | Classifier = kinds[config.architecture](config, **kwargs)
    model.build()
    return model
