"""What a shortlist learns from text pairs of a made-up language, whose words are letters."""

import itertools

import numpy as np
import pytest

from tfk_transformer.constants import UNKNOWN_ID
from tfk_transformer.data import shortlist as shortlists
from tfk_transformer.data.shortlist import learn_shortlist
from tfk_transformer.datasets import Pair
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

WORDS = "abcdefgh"  # their translations are capitals
SENTENCES = 8 * 7 * 6


def made_pairs():
    """Sentences of three words in every order. Every source has a z too, and every translation
    a T.
    """
    for number, words in enumerate(itertools.permutations(WORDS, 3)):
        yield Pair("z" + "".join(words), "T" + "".join(words).upper(), f"made:{number}")


@pytest.fixture(scope="module")
def tokenizers():
    return SubwordTokenizer.train([f"z{WORDS}7"], 50, "char"), SubwordTokenizer.train(
        [f"T{WORDS.upper()}7"], 50, "char"
    )


def token(tokenizer, letter):
    (actual,) = tokenizer.ids_of([letter])
    return actual


def test_translation_is_first_candidate(tokenizers, monkeypatch):
    monkeypatch.setattr(shortlists, "COMMON", 2)
    monkeypatch.setattr(shortlists, "LIKELY", 3)
    source, target = tokenizers
    shortlist = learn_shortlist(made_pairs(), *tokenizers)
    for word in WORDS:
        assert shortlist.likely[token(source, word), 1] == token(target, word.upper())
    np.testing.assert_array_equal(
        shortlist.common, sorted([*range(UNKNOWN_ID + 1), token(target, "T"), token(target, "▁")])
    )
    assert shortlist.likely.dtype == shortlist.common.dtype == np.int32
    assert (shortlist.target_vocab_size, shortlist.sentences) == (target.vocab_size, SENTENCES)


def test_unseen_token_gets_same_piece(tokenizers, monkeypatch):
    monkeypatch.setattr(shortlists, "LIKELY", 2)
    source, target = tokenizers
    shortlist = learn_shortlist(made_pairs(), *tokenizers)
    np.testing.assert_array_equal(shortlist.likely[token(source, "7")], [token(target, "7"), 0, 0])
    # The target vocabulary has no "a".
    np.testing.assert_array_equal(shortlist.likely[token(source, "a"), 0], 0)


def test_common_tokens_not_candidates(tokenizers, monkeypatch):
    monkeypatch.setattr(shortlists, "COMMON", 5)
    monkeypatch.setattr(shortlists, "LIKELY", 4)
    shortlist = learn_shortlist(made_pairs(), *tokenizers)
    assert len(shortlist.common) == 5 + UNKNOWN_ID + 1
    assert not set(shortlist.likely[:, 1:].ravel()) & set(shortlist.common[1:])


def test_unseen_tokens_are_not_common(tokenizers):
    shortlist = learn_shortlist(made_pairs(), *tokenizers)
    assert len(shortlist.common) == len(WORDS) + 2 + UNKNOWN_ID + 1


def test_reading_stops_at_the_limit(tokenizers, monkeypatch):
    monkeypatch.setattr(shortlists, "MAX_TOKEN_PAIRS", 51)  # 25 pairs of tokens in each text
    shortlist = learn_shortlist(made_pairs(), *tokenizers)
    assert shortlist.sentences == 3


def test_shortlist_needs_pairs(tokenizers):
    with pytest.raises(
        ValueError, match="shortlist: expected text pairs to learn it from, got none"
    ):
        learn_shortlist([], *tokenizers)
