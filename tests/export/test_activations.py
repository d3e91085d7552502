"""Every activation of the feed-forward blocks can be exported to ONNX, and so can the layers of
T5.
"""

import keras
import numpy as np
import pytest
from random_translators import OPTIONS, of_transformer

from tfk_transformer.config.model_options import ClassifierConfig
from tfk_transformer.export.exporting import export
from tfk_transformer.export.runtime.onnx_runtime import OnnxClassifier
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator

pytestmark = pytest.mark.usefixtures("few_probes")
# An export each.
NOT_ELSEWHERE = [  # others are of relu
    *(pytest.param(name, marks=pytest.mark.long) for name in ("gelu", "gelu_tanh", "gelu_sigmoid")),
    "silu",
]

RELATIVE = {
    "positions": "relative",
    "position_buckets": 6,
    "position_max_distance": 5,
    "norm_type": "rms",
    "ff_gated": True,
    "ff_bias": False,
}


def with_activation(translator, activation):
    """Return a translator of the same weights with another activation."""
    model = Transformer(translator.model.config.model_copy(update={"ff_activation": activation}))
    model.build()
    model.set_weights(translator.model.get_weights())
    return Translator(model, translator.source_tokenizer, probes=translator.probes)


@pytest.mark.parametrize("activation", NOT_ELSEWHERE)
def test_translator_exports_exactly(small, tmp_path, activation):
    formats = ["onnx", "onnx_steps"]  # a SavedModel has the operators of Keras
    figures = export(with_activation(small, activation), tmp_path / "out", formats)
    assert set(formats) <= set(figures)
    assert figures["ids"] == "equal"
    assert figures["onnx"]["largest_score_difference"] < 1e-4


@pytest.mark.long  # an export
@pytest.mark.parametrize("options", [OPTIONS["t5"], OPTIONS["umt5"]], ids=["t5", "umt5"])
def test_t5_layers_export_exactly(small, tmp_path, options):
    sizes = {"source_vocab_size": 60, "target_vocab_size": 60, "max_length": 24}
    translator = of_transformer(small.source_tokenizer, **{**options, **sizes})
    formats = ["onnx", "onnx_steps"]
    figures = export(translator, tmp_path / "out", formats)
    assert set(formats) <= set(figures)
    assert figures["ids"] == "equal"
    assert figures["onnx"]["largest_score_difference"] < 1e-4


@pytest.mark.long  # an export and the 8-bit searches
def test_translator_exports_to_int8(translator, exported, tmp_path):
    """This takes a model that is sure of its translations."""
    figures = export(with_activation(translator, "gelu"), tmp_path / "out", ["onnx_int8"])
    assert abs(figures["onnx_int8"]["regret_per_token"]) <= 0.01
    int8, float32 = tmp_path / "out" / "generate.int8.onnx", exported / "generate.onnx"
    assert int8.stat().st_size < 0.6 * float32.stat().st_size


# An export each.
@pytest.mark.parametrize(
    "options",
    [pytest.param({}, id="relu", marks=pytest.mark.long), pytest.param(RELATIVE, id="relative")],
)
def test_classifier_exports_exactly(small, tmp_path, options):
    keras.utils.set_random_seed(0)
    sizes = {"model_dim": 18, "ff_dim": 13, "num_heads": 3, "encoder_layers": 2, "max_length": 24}
    model = EncoderClassifier(ClassifierConfig(vocab_size=60, num_classes=3, **sizes, **options))
    model.build()
    random = np.random.default_rng(5)
    model.set_weights(
        [weight + random.normal(scale=0.3, size=weight.shape) for weight in model.get_weights()]
    )
    classifier = TextClassifier(model, small.source_tokenizer, ["a", "b", "c"])
    figures = export(classifier, tmp_path / "out", ["onnx"])
    assert figures["onnx"]["largest_probability_difference"] < 1e-5
    texts = ["seven", "forty-two"]
    actual, expected = (
        OnnxClassifier(tmp_path / "out" / "classify.onnx").classify(texts),
        classifier.classify(texts),
    )
    assert [result.label for result in actual] == [result.label for result in expected]
