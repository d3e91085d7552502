"""The error that names texts: which ones, why, and the results of the others."""

import pickle

import numpy as np
import pytest

from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.text_batches import check_texts, score_in_batches
from tfk_transformer.text.outcome import (
    TextError,
    UnprocessableText,
    refuse_long_texts,
    results_and_refusals,
)
from tfk_transformer.text.results import Classification, Hypothesis, Translation

NAN = float("nan")


def test_each_bad_text_has_a_reason():
    with pytest.raises(TextError) as raised:
        check_texts(["eins", "a\0b", "zwei", "abc\udcff"], "sources")
    remedy = "remove it, or decode the bytes that it came from as UTF-8."
    assert str(raised.value) == (
        "sources: expected text, got the character U+0000 at position 2 of the text at index 1; "
        f"{remedy}"
    )
    assert raised.value.argument == "sources" and raised.value.results == {}
    assert raised.value.reasons == {
        1: f"expected text, got the character U+0000 at position 2; {remedy}",
        3: f"expected text, got the character U+DCFF at position 4; {remedy}",
    }


def test_error_keeps_translations():
    rows = [("", NAN), ("C", -0.5), ("", NAN)]
    texts = ["a b", "c", "d"]
    translations = [
        Translation(text, [Hypothesis(*row)]) for text, row in zip(texts, rows, strict=True)
    ]
    with pytest.raises(TextError) as raised:
        refuse_long_texts(texts, translations, [score for _, score in rows], 7)
    assert raised.value.reasons == {
        0: "expected at most 7 tokens, got more ('a b…', 2 words); split it into sentences.",
        2: "expected at most 7 tokens, got more ('d…', 1 words); split it into sentences.",
    }
    assert raised.value.results == {1: Translation("c", [Hypothesis("C", -0.5)])}


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
    def run(sources, targets):
        return np.array(
            [
                NAN if source == "long" else -len(target)
                for source, target in zip(sources, targets, strict=True)
            ]
        ), targets

    def convert(index, log_probability, target):
        return index, log_probability, target

    with pytest.raises(
        TextError, match="^texts: expected at most 5 tokens per side, got more in pair number 2.$"
    ) as raised:
        score_in_batches(["a", "long", "b"], ["eins", "zwei", "drei11"], 2, 5, run, convert)
    assert raised.value.reasons == {
        1: "expected at most 5 tokens per side, got more in this pair; split it into sentences."
    }
    assert raised.value.results == {0: (0, -4, "eins"), 2: (2, -6, "drei11")}


def test_error_survives_pickling():
    error = pickle.loads(pickle.dumps(TextError("texts", "expected a, got b.", {3: "c"}, {5: "d"})))
    assert (str(error), error.reasons, error.results) == (
        "texts: expected a, got b.",
        {3: "c"},
        {5: "d"},
    )


def test_good_texts_run_once_or_again():
    seen = []

    def run(sources, targets):
        seen.append((sources, targets))
        if "bad" in sources:  # before the model runs
            raise TextError("sources", "expected a, got b.", {sources.index("bad"): "no text"})
        long = targets.index("long")  # found by the model, which has the results of the others
        raise TextError(
            "targets",
            "expected c, got d.",
            {long: "too long"},
            {i: sources[i].upper() for i in range(len(sources)) if i != long},
        )

    results, refusals = results_and_refusals(run, ["a", "bad", "c", "d"], ["A", "B", "long", "D"])
    assert results == {0: "A", 3: "D"}
    assert refusals == {
        1: UnprocessableText("sources", "no text"),
        2: UnprocessableText("targets", "too long"),
    }
    assert seen == [
        (["a", "bad", "c", "d"], ["A", "B", "long", "D"]),
        (["a", "c", "d"], ["A", "long", "D"]),
    ]


def test_all_texts_may_be_refused():
    def run(texts):
        raise TextError("texts", "expected a, got b.", dict.fromkeys(range(len(texts)), "no text"))

    assert results_and_refusals(run, ["a", "b"]) == (
        {},
        {0: UnprocessableText("texts", "no text"), 1: UnprocessableText("texts", "no text")},
    )
    assert results_and_refusals(run, []) == ({}, {})
