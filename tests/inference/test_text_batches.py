import re
import threading

import numpy as np
import pytest

from tfk_transformer.inference.batches import LONG_TEXT as LONG
from tfk_transformer.inference.batches import run_in_batches
from tfk_transformer.text.outcome import check_texts
from tfk_transformer.text.results import Hypothesis, Translation, to_hypotheses


def to_translations(texts, rows):
    """Return the translations of a search's rows."""
    return [Translation(text, to_hypotheses(*row)) for text, row in zip(texts, rows, strict=True)]


def test_translation_has_best_text():
    translation = Translation("eins", [Hypothesis("one", -0.5), Hypothesis("a", -0.75)])
    assert (translation.text, translation.score) == ("one", -0.5)


@pytest.mark.parametrize("texts", [[], ["eins"], ("eins", ""), np.array(["eins", "zwei"])])
def test_strings_are_accepted(texts):
    assert check_texts(texts) is None


def test_a_lone_string_is_refused():
    with pytest.raises(
        ValueError,
        match=re.escape("texts: expected a list of strings, got one string; write ['eins']."),
    ):
        check_texts("eins")


def test_long_string_is_shortened():
    with pytest.raises(ValueError, match=re.escape(f"write ['{'a' * 20}'].")):
        check_texts("a" * 21)


@pytest.mark.parametrize(
    ("other", "kind"), [(b"zwei", "bytes"), (None, "NoneType"), (2, "int"), (["zwei"], "list")]
)
def test_other_types_are_refused(other, kind):
    with pytest.raises(ValueError, match=f"^texts: expected strings, got {kind} at index 1.$"):
        check_texts(["eins", other, 3])


TEXTS = ["ccc", "a", "eeeee", "bb", "ffffff", "dddd", "b"]


@pytest.mark.parametrize(
    ("batch_size", "batches"),
    [
        (1, [["ffffff"], ["eeeee"], ["dddd"], ["ccc"], ["bb"], ["b"], ["a"]]),
        (3, [["ffffff"], ["ccc", "dddd", "eeeee"], ["a", "b", "bb"]]),
        (7, [["a", "b", "bb", "ccc", "dddd", "eeeee", "ffffff"]]),
        (11, [["a", "b", "bb", "ccc", "dddd", "eeeee", "ffffff"]]),
    ],
)
def test_batches_by_length_keep_order(batch_size, batches):
    seen = []

    def run(batch):
        seen.append(batch)
        return [[text.upper(), text] for text in batch], [[len(text), -len(text)] for text in batch]

    rows = run_in_batches(TEXTS, batch_size, run)
    assert seen == batches
    assert rows == [([text.upper(), text], [len(text), -len(text)]) for text in TEXTS]


def test_long_texts_make_small_batches():
    seen, texts = (
        [],
        ["a" * length for length in (LONG // 2, 3 * LONG, 1, LONG + 1, 9 * LONG, LONG, LONG)],
    )
    run_in_batches(
        texts, 4, lambda batch: (seen.append([len(text) for text in batch]), (batch, batch))[1]
    )
    assert seen == [[9 * LONG], [3 * LONG], [LONG + 1], [1, LONG // 2, LONG, LONG]]


@pytest.mark.parametrize("at_once", [2, 3])
def test_batches_run_concurrently(at_once):
    # Breaks, an error, unless so many wait at it at the same time.
    together = threading.Barrier(at_once, timeout=60)

    def run(batch):
        together.wait()
        return [[text.upper() for text in batch]]

    texts = TEXTS[: 2 * at_once]
    assert run_in_batches(texts, 1, run, concurrency=at_once) == [(text.upper(),) for text in texts]


def test_thread_error_reaches_caller():
    with pytest.raises(ZeroDivisionError):
        run_in_batches(TEXTS, 2, lambda batch: 1 / 0, concurrency=2)


def test_no_texts_need_no_run():
    assert run_in_batches([], 3, lambda batch: 1 / 0) == []


def test_batch_size_must_be_positive():
    with pytest.raises(ValueError, match="^batch_size: expected at least 1, got 0.$"):
        run_in_batches(TEXTS, 0, lambda batch: 1 / 0)


def test_lost_row_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        run_in_batches(TEXTS, 3, lambda batch: (batch[1:], batch[1:]))


def test_rows_become_translations():
    rows = [
        (np.array([b"sch\xc3\xb6n", b"gut"], object), np.array([-0.5, -0.75], "float32")),
        (["two", "2"], [-0.25, -1.5]),
    ]
    assert to_translations(["nice", "zwei"], rows) == [
        Translation("nice", [Hypothesis("schön", -0.5), Hypothesis("gut", -0.75)]),
        Translation("zwei", [Hypothesis("two", -0.25), Hypothesis("2", -1.5)]),
    ]


def test_scores_are_plain_numbers():
    (translation,) = to_translations(
        ["a"], [(np.array(["b"], object), np.array([-0.5], "float32"))]
    )
    assert (type(translation.score), type(translation.text)) == (float, str)


def test_unused_beams_are_dropped():
    scores = [-3.0, -1e9, -4e8, -1e9 / 1.5]
    (translation,) = to_translations(["a"], [(["b", "", "c", ""], scores)])
    assert translation.hypotheses == [Hypothesis("b", -3.0), Hypothesis("c", -4e8)]


def test_one_hypothesis_always_stays():
    (translation,) = to_translations(["a"], [(["", ""], [-1e9, -1e9])])
    assert translation.hypotheses == [Hypothesis("", -1e9)]
