"""Exports of a decoder-only model whose prompts differ in length."""

import numpy as np
import pytest

from tfk_transformer import load
from tfk_transformer.config.model_options import LanguageModelConfig
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import END_ID
from tfk_transformer.export import parity
from tfk_transformer.export.exporting import export
from tfk_transformer.export.runtime.onnx_runtime import OnnxStreamer
from tfk_transformer.export.runtime.saved_model_runtime import SavedModelTranslator
from tfk_transformer.inference.streaming import next_tokens
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

pytestmark = pytest.mark.usefixtures("few_probes")
PROMPTS = ["abcabcabcabcab"[:length] for length in range(1, 15)]


@pytest.fixture(scope="module")
def continuer():
    """A model that continues any prompt with x and ends. Where it may not end, it emits a before
    the next x.
    """
    tokenizer = SubwordTokenizer.train(["abcx cabx"] * 9, vocab_size=9, model_type="char")
    size = tokenizer.vocab_size
    ids = {piece: tokenizer.encode([piece])[0][-1] for piece in "abcx"}
    sizes = {"model_dim": 12, "num_heads": 1, "ff_dim": 3, "decoder_layers": 1, "max_length": 23}
    model = LanguageModel(LanguageModelConfig(vocab_size=size, tie_embeddings="none", **sizes))
    model.build()
    following = np.zeros((12, size), "float32")
    following[:size, ids["x"]] = 4
    following[ids["x"]] = [8 * (i == END_ID) + 4 * (i == ids["a"]) for i in range(size)]
    for weight in model.weights:
        if weight.path.endswith("target_embedding/embeddings"):
            weight.assign(100 * np.eye(size, 12))
        elif weight.path.endswith("output/kernel"):
            weight.assign(following)
        elif not weight.path.endswith("gamma"):
            weight.assign(np.zeros(weight.shape))
    return Translator(model, tokenizer, probes=PROMPTS)


@pytest.fixture(scope="module")
def exported(continuer, few_probes, tmp_path_factory):
    """Its files: the export itself compares the steps over prompts of unlike length with the
    search.
    """
    path = tmp_path_factory.mktemp("export") / "prompts"
    figures = export(continuer, path, ["saved_model", "onnx_steps"])
    assert figures["onnx_steps"] == {"ids": "equal"}
    return path


@pytest.fixture(scope="module")
def opened(continuer, exported):
    """The model and its files, as streamers."""
    return continuer, SavedModelTranslator(exported / "saved_model"), OnnxStreamer(exported)


def test_model_ends_after_one_character(continuer):
    assert [actual.text for actual in continuer.translate(PROMPTS, beam_size=1)] == ["x"] * len(
        PROMPTS
    )
    assert continuer.translate(PROMPTS[:1], beam_size=1, min_length=5)[0].text == "xaxax"


@pytest.mark.parametrize("min_length", [0, 1, 2, 5])
def test_batched_prompts_match_single(continuer, opened, min_length):
    settings = SearchSettings(beam_size=1, min_length=min_length).as_arrays()
    ids = parity.probe_ids(PROMPTS, continuer.source_tokenizer, 23)
    expected = [
        actual.text for actual in continuer.translate(PROMPTS, beam_size=1, min_length=min_length)
    ]
    for streamer in opened:
        # (N, T), padding while a prompt is read.
        together = np.stack(list(next_tokens(streamer.runtime, ids, settings)), axis=1)
        assert (
            continuer.target_tokenizer.decode([row[row > 0].tolist() for row in together])
            == expected
        )


def test_saved_model_continues_alike(continuer, exported):
    loaded = load(exported / "saved_model")
    required = {"token_scores": True, "attention": True, "beam_size": 3, "n_best": 2}
    for one, other in zip(
        continuer.translate(PROMPTS, **required), loaded.translate(PROMPTS, **required), strict=True
    ):
        for expected, actual in zip(one.hypotheses, other.hypotheses, strict=True):
            assert (expected.text, expected.tokens, expected.source_tokens) == (
                actual.text,
                actual.tokens,
                actual.source_tokens,
            )
            np.testing.assert_allclose(expected.token_log_probs, actual.token_log_probs, atol=1e-4)
            np.testing.assert_allclose(expected.attention, actual.attention, atol=1e-5)
