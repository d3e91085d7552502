"""The models there are, by the name that stands in their configurations."""

import json

from tfk_transformer.config.model_options import ClassifierConfig, LanguageModelConfig, TransformerConfig

CONFIGS = {"encoder_decoder": TransformerConfig, "decoder": LanguageModelConfig, "encoder": ClassifierConfig}


def config_from_json(text: str):
    """Return the configuration that `to_json` wrote, of the class that its `architecture` names.

    Raises:
        ValueError: for text that is no configuration.
    """
    try:
        architecture = json.loads(text).get("architecture")
    except (json.JSONDecodeError, AttributeError):
        architecture = None  # the configuration says what is wrong
    return CONFIGS.get(architecture, TransformerConfig).from_json(text)


def make_model(config, **kwargs):
    """Return a built model of a configuration.

    Args:
        config: of `CONFIGS`.
        **kwargs: of the model.
    """
    from tfk_transformer.models.classifier import Classifier
    from tfk_transformer.models.language_model import LanguageModel
    from tfk_transformer.models.transformer import Transformer

    kinds = {"encoder_decoder": Transformer, "decoder": LanguageModel, "encoder": Classifier}
    model = kinds[config.architecture](config, **kwargs)
    model.build()
    return model
