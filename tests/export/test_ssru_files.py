"""Files of models with SSRUs give the ids, scores and attention of the Keras model."""

import numpy as np
import pytest
from random_translators import OPTIONS, SIZES, V, of_transformer, translator_of

from tfk_transformer.export.exporting import export
from tfk_transformer.export.runtime.onnx_runtime import OnnxScorer, OnnxStreamer
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

pytestmark = pytest.mark.usefixtures("few_probes")
TEXTS = ["ab ba", "", "cd dc aab", "bba"]
PREFIXES = ["", "cd", "ab ba", "dc cd"]
SEARCHES = (
    {"beam_size": 1},
    {"beam_size": 3, "n_best": 3, "coverage_penalty": 0.4, "repetition_penalty": 1.5},
    {"beam_size": 2, "n_best": 2, "temperature": 1.3, "top_k": 7, "seed": 5},
)


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)


def assert_alike(translator, folder):
    """Check all runtimes, and searches that do not use the cache."""
    others = [
        load(folder / "saved_model"),
        load(folder / "translate.onnx"),
    ]
    for settings in SEARCHES:
        expected = translator.translate(TEXTS, prefixes=PREFIXES, **settings)
        results = [other.translate(TEXTS, prefixes=PREFIXES, **settings) for other in others]
        results.append(translator.translate(TEXTS, prefixes=PREFIXES, use_cache=False, **settings))
        for actual in results:
            for one, other in zip(expected, actual, strict=True):
                texts, scores = zip(*((h.text, h.score) for h in one.hypotheses), strict=True)
                assert texts == tuple(h.text for h in other.hypotheses)
                np.testing.assert_allclose(scores, [h.score for h in other.hypotheses], atol=1e-4)
    streamers = (translator, others[0], OnnxStreamer(folder))
    parts = ["|".join(streamer.stream("cd dc aab", min_length=5)) for streamer in streamers]
    assert parts == parts[:1] * 3
    assert len(parts[0]) > 3
    pairs = (["ab ba", "cd"], ["cd aab", "ab ab ba"])
    scores = [
        each.score(*pairs) for each in (translator, others[0], OnnxScorer(folder / "score.onnx"))
    ]
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], atol=1e-4)


@pytest.mark.long  # an export
def test_ssru_files_match_the_model(tokenizer, tmp_path):
    translator = of_transformer(tokenizer, **OPTIONS["ssru"])
    export(translator, tmp_path / "files", ["saved_model", "onnx", "onnx_steps"])
    assert_alike(translator, tmp_path / "files")
    cache = OnnxStreamer(tmp_path / "files").runtime.cache_shapes
    assert [*cache] == ["cache_0_state", "cache_1_state"]
    assert {tuple(shape) for shape in cache.values()} == {("N", 1, "min(P,1)", SIZES["model_dim"])}


@pytest.mark.long  # an export
def test_ensemble_may_mix_mixers(tokenizer, tmp_path):
    other = {"model_dim": 22, "num_heads": 2, "decoder_layers": 1, "max_length": 13}
    members = [{"decoder_mixer": "ssru"}, other, {"decoder_mixer": "ssru", "decoder_layers": 1}]
    translator = Translator.ensemble([of_transformer(tokenizer, **each) for each in members])
    export(translator, tmp_path / "files", ["saved_model", "onnx", "onnx_steps"])
    assert_alike(translator, tmp_path / "files")


@pytest.mark.long  # an export
def test_decoder_only_ssru_has_no_heads(tokenizer, tmp_path):
    sizes = {name: size for name, size in SIZES.items() if name != "encoder_layers"}
    translator = translator_of(
        tokenizer,
        LanguageModel,
        **sizes,
        vocab_size=V,
        tie_embeddings="all",
        decoder_mixer="ssru",
    )
    export(translator, tmp_path / "files", ["saved_model", "onnx", "onnx_steps"])
    assert_alike(translator, tmp_path / "files")
    source, target = np.array([[5, 6, 2]]), np.array([[7, 8, 9, 2]])
    for each in (translator, OnnxScorer(tmp_path / "files" / "score.onnx")):
        assert each.attention(source, target).shape[:4] == (1, 2, 0, 4)
        with pytest.raises(ValueError, match="attention: expected a model with attention, got a"):
            each.score_tokens(["ab"], ["ba"], attention=True)
