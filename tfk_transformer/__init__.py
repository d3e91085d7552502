"""Encoder-decoder Transformers for Keras 3: fit on text pairs, ship as SavedModel and ONNX.

The public names below load on first use, so that importing the package itself loads neither
TensorFlow nor Keras. Their classes are registered with Keras as soon as Keras is imported, before
or after this package.
"""

import importlib
import sys
import warnings
from typing import TYPE_CHECKING

from tfk_transformer.constants import __version__ as __version__
from tfk_transformer.keras_registration import register_with_keras, watch_imports
from tfk_transformer.runtime_environment import with_install_line, without_start_up_notes

_HOME = {
    "TransformerConfig": "config.model_options",
    "LanguageModelConfig": "config.model_options",
    "ClassifierConfig": "config.model_options",
    "EnsembleConfig": "config.model_options",
    "LayerOptions": "config.layer_options",
    "SearchSettings": "config.search_settings",
    "layers": "layers",
    "losses": "losses",
    "metrics": "metrics",
    "optimizers": "optimizers",
    "schedules": "schedules",
    "Transformer": "models.transformer",
    "LanguageModel": "models.language_model",
    "EncoderClassifier": "models.classifier",
    "Ensemble": "models.ensemble",
    "SubwordTokenizer": "tokenizers.subword_tokenizer",
    "datasets": "datasets",
    "TokenBatches": "data.batches",
    "evaluate": "evaluation",
    "Evaluation": "evaluation",
    "plots": "plots",
    "train": "training.trainer",
    "Recipe": "training.recipe",
    "distill": "training.distillation",
    "import_model": "importing.model_import",
    "from_pytorch": "importing.pytorch_modules.module_weights",
    "trim": "training.trimming",
    "load": "export.runtime.opening",
    "BaseTranslator": "inference.base_translator",
    "BaseClassifier": "inference.base_classifier",
    "Translator": "pipelines.translator",
    "TextClassifier": "pipelines.text_classifier",
    "Translation": "text.results",
    "Hypothesis": "text.alignment",
    "ScoredTarget": "text.results",
    "Classification": "text.results",
    "Refused": "text.outcome",
    "TextError": "text.outcome",
    "Glossary": "text.glossary",
    "export": "export",  # a callable package
    "ParityError": "export.parity",
    "inspect": "export.inspection",
}
# The modules of names that stood here in earlier versions.
_MOVED = {
    **dict.fromkeys(("padding_mask", "causal_mask", "MultiHeadAttention", "FeedForward"), "layers"),
    **dict.fromkeys(("Residual", "sinusoids", "Encoder", "EncoderLayer"), "layers"),
    **dict.fromkeys(("Decoder", "DecoderLayer"), "layers"),
    "LabelSmoothedCrossentropy": "losses",
    **dict.fromkeys(("TokenAccuracy", "Perplexity"), "metrics"),
    **dict.fromkeys(("Adam", "AdamW"), "optimizers"),
    "InverseSquareRoot": "schedules",
    **dict.fromkeys(("share_processors", "fit_in_towers"), "training.towers"),
    **dict.fromkeys(("JoinedBatches", "Share"), "data.batches"),
    "LicenseWarning": "pipelines.licenses",
    "write_serving": "export.to_saved_model.serving",
    **dict.fromkeys(("OnnxTranslator", "OnnxStreamer"), "export.runtime.onnx_runtime"),
    **dict.fromkeys(("OnnxClassifier", "OnnxScorer"), "export.runtime.onnx_runtime"),
    "SavedModelTranslator": "export.runtime.saved_model_runtime",
    "SavedModelClassifier": "export.runtime.saved_model_runtime",
}
__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:  # the same names as in `_HOME`, for type checkers and editors
    from tfk_transformer import datasets as datasets
    from tfk_transformer import layers as layers
    from tfk_transformer import losses as losses
    from tfk_transformer import metrics as metrics
    from tfk_transformer import optimizers as optimizers
    from tfk_transformer import plots as plots
    from tfk_transformer import schedules as schedules
    from tfk_transformer.config.layer_options import LayerOptions as LayerOptions
    from tfk_transformer.config.model_options import ClassifierConfig as ClassifierConfig
    from tfk_transformer.config.model_options import EnsembleConfig as EnsembleConfig
    from tfk_transformer.config.model_options import LanguageModelConfig as LanguageModelConfig
    from tfk_transformer.config.model_options import TransformerConfig as TransformerConfig
    from tfk_transformer.config.search_settings import SearchSettings as SearchSettings
    from tfk_transformer.data.batches import TokenBatches as TokenBatches
    from tfk_transformer.evaluation import Evaluation as Evaluation
    from tfk_transformer.evaluation import evaluate as evaluate
    from tfk_transformer.export.exporting import export as export
    from tfk_transformer.export.inspection import inspect as inspect
    from tfk_transformer.export.parity import ParityError as ParityError
    from tfk_transformer.export.runtime.opening import load as load
    from tfk_transformer.importing.model_import import import_model as import_model
    from tfk_transformer.importing.pytorch_modules.module_weights import (
        from_pytorch as from_pytorch,
    )
    from tfk_transformer.inference.base_classifier import BaseClassifier as BaseClassifier
    from tfk_transformer.inference.base_translator import BaseTranslator as BaseTranslator
    from tfk_transformer.models.classifier import EncoderClassifier as EncoderClassifier
    from tfk_transformer.models.ensemble import Ensemble as Ensemble
    from tfk_transformer.models.language_model import LanguageModel as LanguageModel
    from tfk_transformer.models.transformer import Transformer as Transformer
    from tfk_transformer.pipelines.text_classifier import TextClassifier as TextClassifier
    from tfk_transformer.pipelines.translator import Translator as Translator
    from tfk_transformer.text.alignment import Hypothesis as Hypothesis
    from tfk_transformer.text.glossary import Glossary as Glossary
    from tfk_transformer.text.outcome import Refused as Refused
    from tfk_transformer.text.outcome import TextError as TextError
    from tfk_transformer.text.results import Classification as Classification
    from tfk_transformer.text.results import ScoredTarget as ScoredTarget
    from tfk_transformer.text.results import Translation as Translation
    from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer as SubwordTokenizer
    from tfk_transformer.training.distillation import distill as distill
    from tfk_transformer.training.recipe import Recipe as Recipe
    from tfk_transformer.training.trainer import train as train
    from tfk_transformer.training.trimming import trim as trim


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use (PEP 562).

    Raises:
        AttributeError: for an unknown name.
        ImportError: if a package that the name needs is not installed, with the line that installs
            it.
    """
    if name == "Classifier":
        note = "Classifier is named EncoderClassifier now."
        warnings.warn(note, DeprecationWarning, stacklevel=2)
        name = "EncoderClassifier"
    home = _HOME.get(name)
    if home is None and (home := _MOVED.get(name)):
        place = f"{__name__}.{home}.{name}"
        warnings.warn(f"{name} has moved to {place}.", DeprecationWarning, stacklevel=2)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    path = f"{__name__}.{home}"
    if path in sys.modules:
        module = importlib.import_module(path)  # waits for a thread that is still importing it
    else:
        try:
            with without_start_up_notes():
                module = importlib.import_module(path)
        except ImportError as error:
            raise with_install_line(error) from error
    register_with_keras()  # does nothing if it is done already, or if Keras is not imported
    return module if home == name else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)


watch_imports()
