"""Searches with a shortlist: the same as a search over the whole vocabulary in which every other
token is impossible.
"""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from random_translators import SIZES, V, of_transformer, source_ids
from traced_search import LIMIT_SPECS, setting_tensors, traced_generate

from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.models.ensemble import Ensemble
from tfk_transformer.models.token_model import Step
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.search.beam_search import BeamSearch
from tfk_transformer.search.vocabulary import (
    CANDIDATE_BLOCK,
    Candidates,
    VocabularyBlocks,
    find_candidates,
)
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

WIDE = 200  # tokens of a vocabulary of several blocks


def shortlist_of(source_vocab, target_vocab, common=4, likely=3, seed=0):
    random = np.random.default_rng(seed)
    always = np.union1d(
        np.arange(END_ID + 1), random.choice(np.arange(3, target_vocab), common, replace=False)
    )
    return Shortlist(
        always.astype("int32"),
        random.integers(0, target_vocab, (source_vocab, likely)).astype("int32"),
        target_vocab,
        sentences=1,
    )


def own_candidates(shortlist, row):
    """The tokens that a source may be translated to, in plain Python."""
    return set(shortlist.common.tolist()) | set(shortlist.likely[row].ravel().tolist())


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_candidates_are_per_sentence(seed, batch, length):
    shortlist = shortlist_of(50, WIDE, seed=seed)
    source = np.random.default_rng(seed).integers(0, 50, (batch, length)).astype("int32")
    tokens, places, hidden = (
        part.numpy() for part in find_candidates(shortlist, tf.constant(source))
    )
    assert len(tokens) % CANDIDATE_BLOCK == 0
    np.testing.assert_array_equal(tokens[: END_ID + 1], range(END_ID + 1))
    visible = [tokens[row[0] == 0].tolist() for row in hidden]
    seen = [set(each) for each in visible]
    assert [len(each) for each in seen] == [len(each) for each in visible]  # each once
    assert seen == [own_candidates(shortlist, row) for row in source]
    assert np.isin(hidden, (0, -1e9)).all()
    expected = sorted(set.union(*seen))
    np.testing.assert_array_equal(tokens[places[expected]], expected)
    others = np.setdiff1d(np.arange(WIDE), tokens)
    assert (places[others] == len(tokens)).all()


SEARCHES = (
    {"beam_size": 1},
    {"beam_size": 4, "n_best": 4, "length_penalty": 0.7},
    {
        "beam_size": 3,
        "n_best": 2,
        "min_length": 3,
        "repetition_penalty": 1.4,
        "no_repeat_ngram_size": 2,
    },
    {"beam_size": 2, "n_best": 2, "temperature": 1.3, "top_k": 9, "seed": 11},
)


TABLES = tf.TensorSpec([None, None, WIDE, WIDE], tf.float32)
CANDIDATES = Candidates(
    tokens=tf.TensorSpec([None], tf.int32),
    indices=tf.TensorSpec([WIDE], tf.int32),
    mask=tf.TensorSpec([None, 1, None], tf.float32),
)
LONGEST = np.array([6, 5, 4, 6], "int32")
PREFIX = np.array([[7], [0], [9], [0]], "int32")  # forced also where it is no candidate


def searched(scores, limits, candidates=None):
    """Search with logits of the sentence, the position and the last token: scores (B, T, V, V)."""

    def step(beams, cache, memory):
        (rows,) = memory
        tokens, position = beams.ids[:, :, -1], tf.shape(beams.ids)[2] - 1
        logits = tf.gather(tf.gather(scores, rows)[:, position], tokens, batch_dims=1)
        if candidates:
            logits = tf.gather(logits, candidates.tokens, axis=2)
        return Step(logits, cache, tf.zeros([*tf.unstack(tf.shape(tokens)), 0]))

    search = BeamSearch(step, limits, VocabularyBlocks.of(WIDE), candidates)
    memory, no_source = (tf.range(4),), tf.zeros([4, 0], tf.bool)
    return search.run([], memory, no_source, tf.constant(LONGEST), tf.constant(PREFIX))


@pytest.fixture(scope="module")
def searches():
    """The search over the whole vocabulary, and that over candidates."""
    return [
        tf.function(searched, input_signature=specs, autograph=False)
        for specs in ([TABLES, LIMIT_SPECS], [TABLES, LIMIT_SPECS, CANDIDATES])
    ]


@pytest.mark.parametrize("chosen", SEARCHES)
@pytest.mark.parametrize("seed", range(3))
def test_shortlist_masks_other_tokens(searches, chosen, seed):
    random = np.random.default_rng(seed)
    shortlist = shortlist_of(50, WIDE, seed=seed)
    source = random.integers(0, 50, (4, 3)).astype("int32")
    # Of sentence, position, last token and next one.
    table = tf.constant(random.normal(size=(4, 6, WIDE, WIDE), scale=3), tf.float32)
    impossible = np.full((4, 1, 1, WIDE), -1e9, "float32")
    for row, ids in zip(impossible, source, strict=True):
        row[..., list(own_candidates(shortlist, ids))] = 0.0
    limits, (over_all, over_candidates) = setting_tensors(**chosen), searches
    actual = over_candidates(table, limits, find_candidates(shortlist, tf.constant(source)))
    expected = over_all(table + impossible, limits)
    np.testing.assert_array_equal(actual.ids, expected.ids)
    np.testing.assert_allclose(actual.scores, expected.scores, atol=1e-4)


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)


def with_shortlist(translator, shortlist):
    return Translator(translator.model, translator.source_tokenizer, shortlist=shortlist)


@pytest.mark.long  # traces two searches
def test_full_shortlist_has_no_effect(tokenizer):
    translator = of_transformer(tokenizer)
    everything = Shortlist(np.arange(V, dtype="int32"), np.zeros((V, 1), "int32"), V, sentences=1)
    translators = translator, with_shortlist(translator, everything)
    searches = [traced_generate(each.functions) for each in translators]
    source, nothing = tf.constant(source_ids()), tf.zeros([5, 0], tf.int32)
    for chosen in SEARCHES:
        limits = setting_tensors(**chosen)
        one, other = (search(source, limits, nothing) for search in searches)
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)


def test_float32_copy_keeps_shortlist(tokenizer):
    model = Transformer(of_transformer(tokenizer).model.config, dtype="mixed_bfloat16")
    model.build()
    shortlist = shortlist_of(V, V)
    copy = Translator(model, tokenizer, shortlist=shortlist).in_float32()
    assert copy.model.compute_dtype == "float32"
    assert copy.shortlist is copy.functions.shortlist is shortlist


# Each traces a search.
@pytest.mark.parametrize(
    ("ensemble", "use_cache"),
    [
        (False, True),
        pytest.param(False, False, marks=pytest.mark.long),
        pytest.param(True, True, marks=pytest.mark.long),
    ],
)
def test_translation_ignores_the_batch(tokenizer, ensemble, use_cache):
    translator = of_transformer(tokenizer)
    shortlist = shortlist_of(V, V, common=3, likely=1)
    if ensemble:
        other = of_transformer(tokenizer, **{**SIZES, "model_dim": 12})
        translator = Translator(Ensemble([translator.model, other.model]), tokenizer)
    runtime = with_shortlist(translator, shortlist).runtime
    search = traced_generate((runtime if use_cache else runtime.without_cache()).functions)
    limits, nothing = setting_tensors(beam_size=3, n_best=3), tf.zeros([1, 0], tf.int32)
    together = search(tf.constant(source_ids()), limits, nothing)
    for number, row in enumerate(source_ids()):
        alone = search(tf.constant(row[None, : max(1, np.count_nonzero(row))]), limits, nothing)
        length = alone.ids.shape[2]
        np.testing.assert_array_equal(together.ids[number, :, :length], alone.ids[0])
        np.testing.assert_allclose(together.scores[number], alone.scores[0], atol=1e-5)
        tokens = set(alone.ids.numpy().ravel()) - {PAD_ID}
        assert tokens <= own_candidates(shortlist, row[row != 0])
