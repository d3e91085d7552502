"""Encoder-decoder Transformers for Keras 3: fit on text pairs, ship as SavedModel and ONNX.

The public names below load on first use, so that importing the package itself loads neither TensorFlow nor Keras.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfk_transformer.export.exporting import export as export
    from tfk_transformer.export.parity import ParityError as ParityError

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
    "evaluate": "evaluation",
    "Evaluation": "evaluation",
    "train": "training.trainer",
    "Recipe": "training.recipe",
    "load": "export.runtime.opening",
    "LoadedModel": "inference.interface",
    "TranslatorProtocol": "inference.interface",
    "ClassifierProtocol": "inference.interface",
    "Translation": "inference.results",
    "Hypothesis": "inference.results",
    "ScoredTarget": "inference.results",
    "Classification": "inference.results",
    "Translator": "pipelines.translator",
    "TextClassifier": "pipelines.text_classifier",
    "export": "export",  # a package that can be called
    "ParityError": "export.parity",
    "OnnxTranslator": "export.runtime.onnx_translator",
    "OnnxStreamer": "export.runtime.onnx_streamer",
    "OnnxClassifier": "export.runtime.onnx_classifier",
    "OnnxScorer": "export.runtime.onnx_scorer",
    "SavedModelTranslator": "export.runtime.saved_model_translator",
    "SavedModelClassifier": "export.runtime.saved_model_classifier",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str):
    """Load a public name from its module on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME[name]}")
    return module if _HOME[name] == name else getattr(module, name)


def __dir__():
    return sorted(__all__)
