"""The error that names texts: which ones, why, and the results of the others."""

import pickle

import numpy as np
import pytest

from tfk_transformer.inference.results import to_classifications, to_translations
from tfk_transformer.inference.text_batches import check_texts
from tfk_transformer.inference.text_errors import TextError, UnprocessableText, results_and_refusals
from tfk_transformer.inference.token_scoring import score_in_batches
from tfk_transformer.results import Classification, Hypothesis, Translation

NAN = float("nan")


def test_every_text_that_is_no_text_has_its_reason():
    with pytest.raises(TextError) as raised:
        check_texts(["eins", "a\0b", "zwei", "abc\udcff"], "sources")
    remedy = "remove it, or decode the bytes that it came from as UTF-8."
    assert str(raised.value) == (
        "sources: expected text, got the character U+0000 in place 2 of the one at index 1; "
        f"{remedy}"
    )
    assert raised.value.argument == "sources" and raised.value.results == {}
    assert raised.value.reasons == {
        1: f"expected text, got the character U+0000 in place 2; {remedy}",
        3: f"expected text, got the character U+DCFF in place 4; {remedy}",
    }


def test_texts_that_were_too_long_leave_the_translations_of_the_others():
    with pytest.raises(TextError) as raised:
        to_translations(["a b", "c", "d"], [([""], [NAN]), (["C"], [-0.5]), ([""], [NAN])], 7)
    assert raised.value.reasons == {
        0: "expected at most 7 tokens, got more ('a b…', 2 words); split it into sentences.",
        2: "expected at most 7 tokens, got more ('d…', 1 words); split it into sentences.",
    }
    assert raised.value.results == {1: Translation("c", [Hypothesis("C", -0.5)])}


def test_texts_that_were_too_long_leave_the_classifications_of_the_others():
    with pytest.raises(TextError) as raised:
        to_classifications(
            ["a", "b c"], [("x", 0.75, [0.75, 0.25]), ("", NAN, [NAN, NAN])], ["x", "y"], 5
        )
    assert raised.value.results == {0: Classification("a", "x", 0.75, {"x": 0.75, "y": 0.25})}
    assert raised.value.reasons == {
        1: "expected at most 5 tokens, got more ('b c…', 2 words); split it into sentences."
    }


def test_pairs_that_were_too_long_leave_the_rows_of_the_others():
    def run(sources, targets):
        return np.array(
            [
                NAN if source == "long" else -len(target)
                for source, target in zip(sources, targets, strict=True)
            ]
        ), targets

    with pytest.raises(
        TextError, match="^texts: expected at most 5 tokens a side, got more in pair number 2.$"
    ) as raised:
        score_in_batches(["a", "long", "b"], ["eins", "zwei", "drei11"], 2, 5, run)
    assert raised.value.reasons == {
        1: "expected at most 5 tokens a side, got more in this pair; split it into sentences."
    }
    assert raised.value.results == {} and raised.value.rows == {0: (-4, "eins"), 2: (-6, "drei11")}
    converted = raised.value.with_results(lambda number, row: (number, row[1]))
    assert converted.results == {0: (0, "eins"), 2: (2, "drei11")} and str(converted) == str(
        raised.value
    )


def test_the_error_survives_the_way_to_another_process():
    error = pickle.loads(pickle.dumps(TextError("texts", "expected a, got b.", {3: "c"}, {5: "d"})))
    assert (str(error), error.reasons, error.results) == (
        "texts: expected a, got b.",
        {3: "c"},
        {5: "d"},
    )


def test_texts_beside_a_refused_one_are_run_once_or_again_if_their_results_are_missing():
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


def test_no_text_is_run_where_all_are_refused_or_there_is_none():
    def run(texts):
        raise TextError("texts", "expected a, got b.", dict.fromkeys(range(len(texts)), "no text"))

    assert results_and_refusals(run, ["a", "b"]) == (
        {},
        {0: UnprocessableText("texts", "no text"), 1: UnprocessableText("texts", "no text")},
    )
    assert results_and_refusals(run, []) == ({}, {})
