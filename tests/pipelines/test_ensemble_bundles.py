"""Ensembles of translators: searched as one model, and saved as one bundle."""

import json

import numpy as np
import pytest
from random_translators import SIZES, V, of_transformer, translator_of

from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

TEXTS = ["ab ba", "", "cd dc aab", "bba"]
OTHER = {
    "model_dim": 22,
    "num_heads": 2,
    "decoder_layers": 1,
    "max_length": 13,
    "positions": "learned",
    "tie_embeddings": "all",
}
ALL_SETTINGS = {
    "beam_size": 3,
    "n_best": 3,
    "coverage_penalty": 0.4,
    "repetition_penalty": 1.5,
    "no_repeat_ngram_size": 2,
    "min_length": 3,
}
DRAWN = {"beam_size": 2, "n_best": 2, "temperature": 1.3, "top_k": 7, "seed": 5}


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)


@pytest.fixture(scope="module")
def members(tokenizer):
    return [of_transformer(tokenizer), of_transformer(tokenizer, **OTHER)]


@pytest.fixture(scope="module")
def ensemble(members):
    members[0].probes = ["ab", "cd ba"]
    return Translator.ensemble(members)


@pytest.fixture
def bundle(ensemble, tmp_path):
    ensemble.save(tmp_path / "bundle")
    return tmp_path / "bundle"


def found_by(translator, **settings):
    translations = translator.translate(TEXTS, **settings)
    return [hypothesis.text for each in translations for hypothesis in each.hypotheses], np.array(
        [hypothesis.score for each in translations for hypothesis in each.hypotheses]
    )


def assert_same(one, other, **settings):
    (texts, scores), (other_texts, other_scores) = (
        found_by(one, **settings),
        found_by(other, **settings),
    )
    assert texts == other_texts
    np.testing.assert_allclose(scores, other_scores, atol=1e-4)


@pytest.mark.long  # traces the search of two members
def test_twin_ensemble_matches_model(members):
    twice = Translator.ensemble(members[:1] * 2)
    for settings in ({"beam_size": 1}, ALL_SETTINGS, DRAWN):
        assert_same(twice, members[0], **settings)


def test_ensemble_scores_are_means(ensemble, members):
    pairs = ["ab ba", "cd dc", "ab"], ["cd aab", "ab", "bba cd"]
    np.testing.assert_allclose(
        ensemble.score(*pairs),
        np.mean([member.score(*pairs) for member in members], axis=0),
        atol=1e-4,
    )
    for actual in ensemble.translate(
        TEXTS, beam_size=3, n_best=3, length_penalty=0, token_scores=True
    ):
        for hypothesis in actual.hypotheses:
            assert hypothesis.score == pytest.approx(
                float(np.sum(hypothesis.token_log_probs)), abs=1e-4
            )


@pytest.mark.long  # traces two searches
def test_cache_keeps_translations(ensemble):
    for settings in ({"beam_size": 1}, ALL_SETTINGS):
        texts, scores = found_by(ensemble, **settings)
        others, other_scores = found_by(ensemble, use_cache=False, **settings)
        assert texts == others
        np.testing.assert_allclose(scores, other_scores, atol=1e-4)


@pytest.mark.long  # a search with two models
def test_stream_matches_greedy_search(ensemble):
    for settings in ({}, {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2}):
        for text, translation in zip(
            TEXTS, ensemble.translate(TEXTS, beam_size=1, **settings), strict=True
        ):
            assert "".join(ensemble.stream(text, **settings)) == translation.text


def test_ensemble_attention_is_mean(ensemble, members):
    actual, *others = [
        each.score_tokens(["ab ba"], ["cd aab"], attention=True)[0].attention
        for each in (ensemble, *members)
    ]
    # (T, S), of the last layers.
    expected = np.mean([other[-1].mean(axis=0) for other in others], axis=0)
    np.testing.assert_allclose(actual, expected[None, None], atol=1e-5)


def test_bundle_round_trip(ensemble, bundle):
    loaded, described = load(bundle), inspect(bundle)
    assert loaded.probes == ["ab", "cd ba"]
    assert loaded.max_length == OTHER["max_length"]
    ids = np.array([[3, 4, 2], [5, 2, 0]])
    logits = [np.array(each.model({"source": ids, "target": ids})) for each in (loaded, ensemble)]
    np.testing.assert_allclose(*logits, atol=1e-5)
    assert loaded.target_tokenizer.model == ensemble.target_tokenizer.model
    assert described["config"]["architecture"] == "ensemble"
    assert described["parameters"] == ensemble.model.count_params()
    assert described["settings"]["max_length"]["maximum"] == OTHER["max_length"]


def test_extra_members_are_refused(bundle):
    config = json.loads((bundle / "config.json").read_text())
    arrays = len(load(bundle).model.named_weights)
    first, second = config["members"]
    for members, problem in (
        ([first, second, first], "no 'member_2/source_embedding/embeddings' (15, 18)"),
        ([first, *[second] * 400], f"there are 803 layers and {arrays} arrays"),
    ):
        (bundle / "config.json").write_text(json.dumps({**config, "members": members}))
        with pytest.raises(ValueError, match="^bundle: ") as refused:
            load(bundle)
        assert problem in str(refused.value)
    # Of all members together.
    assert "a table of source_vocab_size by model_dim would have 132,270" in str(refused.value)


def test_other_tokenizers_are_refused(members):
    other = SubwordTokenizer.train(["ba ab bba aab baba dc cd"] * 30, V)
    for source, target, side in (
        (other, members[0].target_tokenizer, "source"),
        (members[0].source_tokenizer, other, "target"),
    ):
        wrong = Translator(members[1].model, source, target)
        with pytest.raises(
            ValueError,
            match=(
                rf"members: expected the same {side}_tokenizer in all members, .* in "
                r"members\[2\]; use"
            ),
        ):
            Translator.ensemble([*members, wrong])


def test_members_must_be_transformers(members, tokenizer):
    sizes = {name: size for name, size in SIZES.items() if name != "encoder_layers"}
    decoder = translator_of(tokenizer, LanguageModel, **sizes, vocab_size=V)
    with pytest.raises(
        ValueError,
        match=r"got members\[1\] of type LanguageModel; only encoder-decoder models can be members",
    ):
        Translator.ensemble([members[0], decoder])
    with pytest.raises(ValueError, match="members: expected at least one Transformer, got none"):
        Translator.ensemble([])
