"""The error that names texts: which ones, why, and the results of the others."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.text_search import score_pairs
from tfk_transformer.text.outcome import (
    Refused,
    TextError,
    check_texts,
    long_texts,
    outcomes_of_valid,
    results_of,
    too_long,
)
from tfk_transformer.text.results import Classification, ScoredTarget

NAN = float("nan")


def test_each_bad_text_has_a_reason():
    with pytest.raises(TextError) as raised:
        check_texts(["eins", "a\0b", "zwei", "abc\udcff"], "sources")
    remedy = "remove it, or decode the bytes that it came from as UTF-8."
    assert str(raised.value) == (
        "sources: expected text, got the character U+0000 at position 2 of the text at index 1; "
        f"{remedy}"
    )
    assert raised.value.argument == "sources"
    assert raised.value.results == {}
    assert raised.value.reasons == {
        1: f"expected text, got the character U+0000 at position 2; {remedy}",
        3: f"expected text, got the character U+DCFF at position 4; {remedy}",
    }


def test_error_keeps_results():
    texts = ["a b", "c", "d"]
    outcomes = [too_long("a b", 7), "C", too_long("d", 7)]
    with pytest.raises(TextError) as raised:
        results_of(outcomes, lambda refused: long_texts(texts, refused, 7))
    assert str(raised.value) == (
        "texts: expected at most 7 tokens each, got more in 2: number 1 ('a b…', 2 words), "
        "number 3 ('d…', 1 words); split them into sentences."
    )
    assert raised.value.reasons == {
        0: "expected at most 7 tokens, got more ('a b…', 2 words); split it into sentences.",
        2: "expected at most 7 tokens, got more ('d…', 1 words); split it into sentences.",
    }
    assert raised.value.results == {1: "C"}


def test_only_three_texts_are_named():
    problem = long_texts(["sehr " * 11, *"bcdef"], [0, 1, 2, 3, 4], 7)
    assert problem.endswith(
        "got more in 5: number 1 ('sehr sehr sehr sehr sehr sehr …', 11 words), "
        "number 2 ('b…', 1 words), number 3 ('c…', 1 words); split them into sentences."
    )


def test_error_keeps_classifications():
    class Runtime:
        """A classifier of two texts, the second of which is too long."""

        labels = ["x", "y"]
        max_length = 5

        def concurrency(self, texts):
            return 1

        def run(self, name, inputs, workload):
            return {
                "label": np.array([b"x", b""], object),
                "probability": np.array([0.75, NAN], "float32"),
                "probabilities": np.array([[0.75, 0.25], [NAN, NAN]], "float32"),
            }

    with pytest.raises(TextError) as raised:
        BaseClassifier(Runtime()).classify(["a", "b c"])
    assert raised.value.results == {0: Classification("a", "x", 0.75, {"x": 0.75, "y": 0.25})}
    assert raised.value.reasons == {
        1: "expected at most 5 tokens, got more ('b c…', 2 words); split it into sentences."
    }


def test_long_pairs_leave_other_results():
    class Runtime:
        """Scores pairs of ids by the number of target ids. A source of 3 ids is too long."""

        max_length = 5
        tokenizers = SimpleNamespace(
            source_tokenizer=SimpleNamespace(encode=lambda texts: [[1] * len(t) for t in texts]),
            target_tokenizer=SimpleNamespace(encode=lambda texts: [[1] * len(t) for t in texts]),
            details=lambda *arrays: {"tokens": [], "token_log_probs": []},
        )

        def require(self, argument, *names):
            pass

        def run(self, name, inputs, workload=None):
            long = np.count_nonzero(inputs["source_ids"], axis=1) == 4
            sums = np.where(long, NAN, -np.count_nonzero(inputs["target_ids"], axis=1))
            return {"token_log_probs": inputs["target_ids"], "log_probability": sums}

    outcomes = score_pairs(Runtime(), ["a", "bbb", "c"], ["eins", "zwei", "drei11"], 2)
    assert outcomes == [
        ScoredTarget("eins", -5, [], []),
        Refused(
            "texts",
            "expected at most 5 tokens per side, got more in this pair; split it into sentences.",
        ),
        ScoredTarget("drei11", -7, [], []),
    ]


def test_error_survives_pickling():
    error = pickle.loads(pickle.dumps(TextError("texts", "expected a, got b.", {3: "c"}, {5: "d"})))
    assert (str(error), error.reasons, error.results) == (
        "texts: expected a, got b.",
        {3: "c"},
        {5: "d"},
    )


def test_only_valid_rows_run():
    seen = []

    def run(sources, targets):
        seen.append((sources, targets))
        return [source.upper() for source in sources]

    columns = {"sources": ["a", "b\0", "c", "d"], "targets": ["A", "B\0", "\udcff", "D"]}
    remedy = "remove it, or decode the bytes that it came from as UTF-8."
    assert outcomes_of_valid(run, columns) == [
        "A",
        Refused("sources", f"expected text, got the character U+0000 at position 2; {remedy}"),
        Refused("targets", f"expected text, got the character U+DCFF at position 1; {remedy}"),
        "D",
    ]
    assert seen == [(["a", "d"], ["A", "D"])]
    assert outcomes_of_valid(run, {"sources": [], "targets": []}) == []
