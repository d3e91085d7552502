"""Encoder-decoder Transformers for Keras 3: fit on text pairs, ship as SavedModel and ONNX.

The public names below load on first use, so that importing the package itself loads neither TensorFlow nor Keras.
"""

import importlib

__version__ = "0.1.0.dev0"

_HOME = {
    "TransformerConfig": "config",
    "LanguageModelConfig": "config",
    "ClassifierConfig": "config",
    "SearchSettings": "config",
    "padding_mask": "masks",
    "causal_mask": "masks",
    "MultiHeadAttention": "attention",
    "FeedForward": "feed_forward",
    "Residual": "residual",
    "Encoder": "encoder",
    "EncoderLayer": "encoder",
    "Decoder": "decoder",
    "DecoderLayer": "decoder",
    "Transformer": "transformer",
    "LanguageModel": "language_model",
    "Classifier": "classifier",
    "LabelSmoothedCrossentropy": "losses",
    "TokenAccuracy": "metrics",
    "Perplexity": "metrics",
    "InverseSquareRoot": "schedules",
    "Adam": "optimizers",
    "AdamW": "optimizers",
    "share_processors": "towers",
    "fit_in_towers": "towers",
    "SubwordTokenizer": "tokenizers",
    "TokenBatches": "batching",
    "JoinedBatches": "batching",
    "train": "training",
    "Recipe": "recipe",
    "Translator": "translator",
    "TextClassifier": "text_classifier",
    "OnnxTranslator": "export.runtime",
    "OnnxStreamer": "export.onnx_streaming",
    "OnnxClassifier": "export.runtime",
    "OnnxScorer": "export.scorer",
    "SavedModelTranslator": "export.saved_model",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str):
    """Load a public name from its module on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__():
    return sorted(__all__)
