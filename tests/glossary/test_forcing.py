"""Where terms are tried, and which result stays."""

import pytest

from tfk_transformer.text.glossary import (
    Candidate,
    ScoredCandidate,
    candidates,
    leftmost_candidate,
    missing_terms,
)


@pytest.mark.parametrize(
    ("terms", "text", "placed", "lacking"),
    [
        (["hound"], "A hound sleeps.", [], []),
        (["hound"], "Hound!", [], []),
        (["hound"], "Hounds sleep.", [], ["hound"]),
        (["hound", "hound"], "A hound sleeps.", [], ["hound"]),
        (["hound"], "Two hounds", ["hound"], []),  # the search added a letter to what was forced
        (["hound", "hound"], "Two hounds", ["hound"], ["hound"]),
        (["a b"], "x a b c", [], []),
        (["狗"], "黑狗在跑", [], []),
    ],
)
def test_missing_terms_are_listed(terms, text, placed, lacking):
    assert missing_terms(terms, text, placed) == lacking


def test_term_is_tried_at_each_place():
    assert candidates(["hound"], "A dog (old).", "") == [
        Candidate("hound", 0, "Hound"),
        Candidate("hound", 1, "A hound"),
        Candidate("hound", 5, "A dog hound"),
        Candidate("hound", 7, "A dog (hound"),
        Candidate("hound", 10, "A dog (old hound"),
        Candidate("hound", 11, "A dog (old) hound"),
        Candidate("hound", 12, "A dog (old). hound"),
    ]
    assert [one.prefix for one in candidates(["x", "y", "x"], "A dog", "A")] == [
        "A x",
        "A dog x",
        "A y",
        "A dog y",
    ]
    assert [one.prefix for one in candidates(["狗"], "黑猫", "")] == ["狗", "黑狗", "黑猫狗"]
    assert [one.prefix for one in candidates(["hound"], "", "")] == ["hound"]
    assert candidates([], "A dog", "") == []


def test_best_place_of_first_term():
    tried = [
        ScoredCandidate(Candidate("b", 9, "…b"), "b late", -1.0),
        ScoredCandidate(Candidate("b", 2, "…b"), "b early", -3.0),
        ScoredCandidate(Candidate("a", 0, "…a"), "a early", -9.0),
        ScoredCandidate(Candidate("a", 4, "…a"), "a right", -2.0),
    ]
    assert leftmost_candidate(tried).translation == "a right"
