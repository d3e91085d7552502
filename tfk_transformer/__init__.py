"""Encoder-decoder Transformers for Keras 3: fit on text pairs, ship as SavedModel and ONNX.

The public names below load on first use, so that importing the package itself loads neither TensorFlow nor Keras.
Their classes are registered with Keras as soon as Keras is imported, before or after this package.
"""

import importlib

from tfk_transformer.keras_registration import register_with_keras, watch_for_keras

__version__ = "0.1.0.dev0"

_HOME = {
    "TransformerConfig": "config.model_options",
    "LanguageModelConfig": "config.model_options",
    "ClassifierConfig": "config.model_options",
    "LayerOptions": "config.layer_options",
    "SearchSettings": "config.search_settings",
    "padding_mask": "layers.masks",
    "causal_mask": "layers.masks",
    "MultiHeadAttention": "layers.attention",
    "FeedForward": "layers.feed_forward",
    "Residual": "layers.residual",
    "sinusoids": "layers.position_encoding",
    "Encoder": "layers.encoder",
    "EncoderLayer": "layers.encoder",
    "Decoder": "layers.decoder",
    "DecoderLayer": "layers.decoder",
    "Transformer": "models.transformer",
    "LanguageModel": "models.language_model",
    "Classifier": "models.classifier",
    "LabelSmoothedCrossentropy": "losses",
    "TokenAccuracy": "metrics",
    "Perplexity": "metrics",
    "InverseSquareRoot": "schedules",
    "Adam": "optimizers",
    "AdamW": "optimizers",
    "share_processors": "training.towers",
    "fit_in_towers": "training.towers",
    "SubwordTokenizer": "tokenizers.subword_tokenizer",
    "TokenBatches": "data.batches",
    "JoinedBatches": "data.batches",
    "train": "training.trainer",
    "Recipe": "training.recipe",
    "Translator": "pipelines.translator",
    "TextClassifier": "pipelines.text_classifier",
    "OnnxTranslator": "export.runtime.onnx_translator",
    "OnnxStreamer": "export.runtime.onnx_streamer",
    "OnnxClassifier": "export.runtime.onnx_translator",
    "OnnxScorer": "export.runtime.onnx_scorer",
    "SavedModelTranslator": "export.runtime.saved_model_translator",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME[name]}")
    register_with_keras()  # does nothing where it is done, or where the module does not use Keras
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)


watch_for_keras()
