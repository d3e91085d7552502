"""The rules of other libraries' searches: the form of the length penalty, the end of the search, a
forced last token and renormalization, on scripted logits.
"""

import numpy as np
import pytest
from scripted_search import VOCAB, nowhere_to_end, random_table, searched

from tfk_transformer.config.search_settings import PENALTY_FORMS
from tfk_transformer.constants import END_ID

FORMS = {name: index for index, name in enumerate(PENALTY_FORMS)}
FALSE, TRUE, NEVER = range(3)  # the values of `early_stopping` in graphs


def log_softmax(values):
    return values - np.log(np.exp(values - values.max()).sum()) - values.max()


def expected(
    table, beam_size, alpha, form="length", stopping=TRUE, forced=False, renormalized=False
):
    """The finished hypotheses and their scores, best first, step by step as in the documentation
    of transformers' beam search; table (T, V, V).
    """
    added, divisor = PENALTY_FORMS[form]
    longest = len(table)
    live, finished = [(0.0, (1,))], []

    def penalty(length):
        return ((added + length) / divisor) ** alpha

    for position in range(longest):
        candidates = []
        for total, tokens in live:
            log_probs = log_softmax(table[position, tokens[-1]].astype("float64"))
            if renormalized:
                log_probs[END_ID:] = log_softmax(log_probs[END_ID:])
            if forced and position == longest - 1:
                log_probs = np.where(np.arange(VOCAB) == END_ID, 0.0, -np.inf)
            candidates += [
                (total + log_probs[token], (*tokens, token)) for token in range(END_ID, VOCAB)
            ]
        candidates = sorted(candidates, reverse=True)[: 2 * beam_size]
        length = position + 1
        finished += [
            (total / penalty(length), tokens[1:])
            for total, tokens in candidates[:beam_size]
            if (tokens[-1] == END_ID or length == longest) and total > -np.inf
        ]
        finished = sorted(finished, reverse=True)[:beam_size]
        live = [each for each in candidates if each[1][-1] != END_ID][:beam_size]
        if len(finished) < beam_size:
            continue
        compared = longest if stopping == NEVER else length
        if stopping == TRUE or live[0][0] / penalty(compared) <= finished[-1][0]:
            break
    return finished


def assert_equal(actual, hypotheses):
    count = len(hypotheses)
    np.testing.assert_allclose(
        actual.scores.numpy()[0, :count], [score for score, _ in hypotheses], rtol=2e-5, atol=1e-5
    )
    ids = [tuple(row[row > 0]) for row in actual.ids.numpy()[0, :count]]
    assert ids == [tokens for _, tokens in hypotheses]


@pytest.mark.parametrize("stopping", [FALSE, TRUE, NEVER])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_search_follows_other_rules(stopping, form, alpha):
    for seed in range(5):
        table = random_table(seed, max_length=8)
        for options in ({}, {"forced": True}, {"renormalized": True}):
            settings = {
                "length_penalty_form": FORMS[form],
                "early_stopping": stopping,
                "forced_eos": int("forced" in options),
                "renormalize_logits": int("renormalized" in options),
            }
            actual = searched(table, 3, 3, alpha, max_length=8, **settings)
            assert_equal(actual, expected(table[0], 3, alpha, form, stopping, **options))


def test_rules_of_stopping_differ():
    """Otherwise, the comparisons above would prove nothing."""
    results = [
        [expected(random_table(seed, max_length=8)[0], 3, 1.0, "length", rule) for seed in range(9)]
        for rule in (FALSE, TRUE, NEVER)
    ]
    assert results[0] != results[1] != results[2] != results[0]


def two_endings():
    """A table in which a hypothesis of two tokens and one of four are the only probable ones."""
    table = np.full((1, 4, VOCAB, VOCAB), -99.0, "float32")
    table[0, 0, 1, [3, 4]] = np.log([0.5, 0.5])
    table[0, 1, 3, END_ID] = 0.0
    table[0, 1, 4, 5] = 0.0
    table[0, 2, 5, 6] = np.log(0.8)
    table[0, 2, 5, 3] = np.log(0.2)
    table[0, 3, 6, END_ID] = 0.0
    table[0, 3, 3, END_ID] = 0.0
    return table


@pytest.mark.parametrize(
    ("form", "best", "score"),
    [
        ("gnmt", [3, END_ID], np.log(0.5) / (7 / 6)),
        ("length", [4, 5, 6, END_ID], np.log(0.4) / 4),
        ("length_with_start", [4, 5, 6, END_ID], np.log(0.4) / 5),
    ],
)
def test_penalty_has_three_forms(form, best, score):
    actual = searched(two_endings(), 2, length_penalty=1.0, length_penalty_form=FORMS[form])
    ids = actual.ids.numpy()[0, 0]
    assert ids[ids > 0].tolist() == best
    assert actual.scores.numpy()[0, 0] == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize(
    ("stopping", "ending", "best"),
    [
        (TRUE, 0.4, [END_ID]),
        (FALSE, 0.4, [3, 3, 3, END_ID]),
        (FALSE, 0.6, [END_ID]),
        (NEVER, 0.6, [3, 3, 3, END_ID]),
    ],
)
def test_stopping_has_three_rules(stopping, ending, best):
    """After two tokens, there are two complete hypotheses; a longer one is better by its length."""
    table = np.full((1, 4, VOCAB, VOCAB), -99.0, "float32")
    table[0, 0, 1, [3, END_ID]] = np.log([0.46, 0.54])
    table[0, 1, 3, [3, END_ID]] = np.log([1 - ending, ending])
    table[0, 2:, 3, 3] = 0.0
    table[0, 3, 3] = -99.0
    table[0, 3, 3, END_ID] = 0.0
    settings = {"early_stopping": stopping, "length_penalty_form": FORMS["length"]}
    actual = searched(table, 2, length_penalty=1.0, **settings)
    ids = actual.ids.numpy()[0, 0]
    assert ids[ids > 0].tolist() == best


@pytest.mark.parametrize("stopping", [FALSE, TRUE, NEVER])
def test_greedy_ends_at_the_first_end(stopping):
    table = nowhere_to_end()
    table[0, 0, 1, [END_ID, 3]] = [9.0, 8.9]
    table[0, 1:, 3, 3] = 99.0  # a longer hypothesis would be better
    settings = {"early_stopping": stopping, "length_penalty_form": FORMS["length"]}
    actual = searched(table, 1, length_penalty=2.0, **settings)
    assert actual.ids.numpy()[0, 0].tolist() == [END_ID]


def test_forced_end_costs_nothing():
    table = nowhere_to_end()
    table[0, 0, 1, 4] = table[0, 1, 4, 3] = table[0, 2, 3, 5] = 9.0
    for beam_size in (1, 3):
        cut = searched(table, beam_size, max_length=3)
        assert cut.ids.numpy()[0, 0].tolist() == [4, 3, 5]
        forced = searched(table, beam_size, max_length=3, forced_eos=1)
        assert forced.ids.numpy()[0, 0].tolist() == [4, 3, END_ID]
        assert forced.scores.numpy()[0, 0] == pytest.approx(0.0, abs=1e-4)


def test_forced_end_waits_for_each_limit():
    table = np.concatenate([nowhere_to_end(), nowhere_to_end()])
    table[:, :, :, 4] = 9.0
    longest = np.array([2, 4], "int32")
    actual = searched(table, 2, max_length=longest, forced_eos=1)
    assert actual.ids.numpy()[:, 0].tolist() == [[4, END_ID, 0, 0], [4, 4, 4, END_ID]]


def test_renormalized_probabilities_add_up():
    """To 1 over the tokens that a search may choose, also below the minimum length."""
    table = np.zeros((1, 4, VOCAB, VOCAB), "float32")
    table[..., :END_ID] = 9.0  # padding and start
    settings = {"renormalize_logits": 1, "max_length": 1}
    actual = searched(table, 5, 5, **settings)
    np.testing.assert_allclose(actual.scores[0], np.log([1 / 5] * 5), atol=1e-5)
    actual = searched(table, 5, 5, min_length=3, **settings)
    np.testing.assert_allclose(actual.scores[0, :4], np.log([1 / 4] * 4), atol=1e-5)
    plain = searched(table, 5, 5, max_length=1)
    assert plain.scores.numpy()[0, 0] < np.log(1 / 1000)


def test_renormalization_follows_forbidden_ngrams():
    table = np.zeros((1, 4, VOCAB, VOCAB), "float32")
    table[0, 0, 1, 3] = 99.0
    settings = {"renormalize_logits": 1, "no_repeat_ngram_size": 1, "max_length": 2}
    actual = searched(table, 4, 4, **settings)  # of the five tokens, one was chosen before
    np.testing.assert_allclose(actual.scores[0], np.log([1 / 4] * 4), atol=1e-5)
