"""Each document's model can be saved and exported in every form: .keras, bundle, SavedModel,
ONNX.
"""

import keras
import numpy as np
import pytest

from tfk_transformer.config.model_options import ClassifierConfig, TransformerConfig
from tfk_transformer.datasets.numbers import spell
from tfk_transformer.export import parity
from tfk_transformer.export.exporting import export
from tfk_transformer.models.registry import make_model
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

SMALL = {
    "model_dim": 22,
    "num_heads": 2,
    "ff_dim": 37,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_length": 41,
    "dropout": 0.0,
}
PRESETS = {
    "yet_another_explanation": {"key_dim": 13, "value_dim": 17},
    "from_zero": {"key_dim": 22, "value_dim": 22},
    "step_by_step": {
        "key_dim": 13,
        "value_dim": 17,
        "norm": "pre",
        "positions": "sinusoidal_halves",
    },
    "transformer_details": {"key_dim": 13, "value_dim": 17},
    "from_scratch_pytorch": {"key_dim": 13, "value_dim": 17},
}


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(
        [spell(n, language) for n in range(300) for language in ("en", "de")], 90
    )


def random_translator(preset, tokenizer):
    """Make one with weights large enough that translations differ."""
    keras.utils.set_random_seed(0)
    sizes = {"source_vocab_size": tokenizer.vocab_size, "target_vocab_size": tokenizer.vocab_size}
    model = Transformer(TransformerConfig.preset(preset, **{**SMALL, **sizes, **PRESETS[preset]}))
    model.build()
    random = np.random.default_rng(0)
    model.set_weights(
        [weight + random.normal(size=weight.shape) * 0.3 for weight in model.get_weights()]
    )
    return Translator(model, tokenizer, probes=[spell(n, "en") for n in range(0, 120, 5)])


# An export in every form, and two searches of the model, each traced.
@pytest.mark.long
@pytest.mark.parametrize("preset", PRESETS)
def test_preset_formats_agree(preset, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(parity, "PROBES", 24)
    translator = random_translator(preset, tokenizer)
    expected = translator.translate(translator.probes, max_length=20)
    assert len({translation.text for translation in expected}) > 5
    # Refuses to write unless every id is the model's.
    figures = export(translator, tmp_path / "export")
    assert figures["ids"] == "equal"
    assert figures["sentences"] == 24
    translator.save(tmp_path / "bundle")
    translator.model.save(tmp_path / "model.keras")
    ids = np.random.default_rng(1).integers(4, tokenizer.vocab_size, size=(2, 5, 7))
    inputs = {"source": ids[0], "target": ids[1]}
    logits = np.asarray(translator.model(inputs))
    for loaded in (
        Translator.load(tmp_path / "bundle").model,
        keras.saving.load_model(tmp_path / "model.keras"),
    ):
        np.testing.assert_array_equal(np.asarray(loaded(inputs)), logits)
    whole = translator.translate(translator.probes, max_length=20, use_cache=False)
    assert [translation.text for translation in whole] == [
        translation.text for translation in expected
    ]


@pytest.mark.parametrize(
    ("preset", "sizes", "parameters"),
    [
        # What the first document's collection prints for its Multi30k model.
        (
            "yet_another_explanation",
            {"source_vocab_size": 10_000, "target_vocab_size": 8_200, "max_length": 50},
            26_201_096,
        ),
        (
            "from_scratch_pytorch",
            {"source_vocab_size": 11, "target_vocab_size": 11, "max_length": 12},
            30_193_163,
        ),
    ],
)
def test_preset_parameter_counts(preset, sizes, parameters):
    assert make_model(TransformerConfig.preset(preset, **sizes)).count_params() == parameters


def test_classifier_parameter_count():
    # The document prints 492,900, without the position table of 100 x 32.
    sizes = {"model_dim": 32, "ff_dim": 128, "num_heads": 1, "encoder_layers": 1, "max_length": 100}
    config = ClassifierConfig.preset(
        "yet_another_explanation", vocab_size=15_000, num_classes=4, **sizes
    )
    assert make_model(config).count_params() == 492_900 + 100 * 32
