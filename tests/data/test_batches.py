import itertools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from pairs_in_memory import BUDGET, LONGEST, SIDES, WORDS, Memory, taken, unpadded

from tfk_transformer.data.batches import JoinedBatches, TokenBatches
from tfk_transformer.data.bucketing import bucket_lengths
from tfk_transformer.datasets import Report


@pytest.fixture(scope="module")
def batches(tokenizers):
    return TokenBatches(Memory(SIDES), "train", *tokenizers, BUDGET, LONGEST, few_shapes=True)


@pytest.fixture(scope="module")
def epoch(batches):
    return taken(batches.dataset())


def encoded(tokenizers, sides, longest):
    """The pairs that fit as (source, target, labels) ids, from only the tokenizers."""
    sources, targets = (
        tokenizer.encode(texts)
        for tokenizer, texts in zip(tokenizers, zip(*sides, strict=True), strict=True)
    )
    return [
        ((*source, 2), (1, *target), (*target, 2))
        for source, target in zip(sources, targets, strict=True)
        if len(source) + 1 <= longest and len(target) + 1 <= longest
    ]


def token_count(tokenizers, source, target):
    return max(len(tokenizers[0].encode([source])[0]), len(tokenizers[1].encode([target])[0])) + 1


@pytest.mark.parametrize(
    ("max_length", "lengths"),
    [
        (64, [8, 10, 12, 14, 16, 20, 24, 28, 34, 40, 48, 58, 64]),
        (31, [8, 10, 12, 14, 16, 20, 24, 28, 31]),
        (11, [8, 10, 11]),
        (9, [8, 9]),
        (8, [8]),
        (5, [5]),
    ],
)
def test_bucket_lengths_by_maximum(max_length, lengths):
    assert bucket_lengths(max_length) == lengths


def test_buckets_grow_by_a_fifth():
    lengths = np.array(bucket_lengths(1000))
    assert lengths[-1] == 1000
    assert (lengths[:-1] % 2 == 0).all()
    growth = lengths[5:-1] / lengths[4:-2]
    assert 1.16 < growth.min() < growth.max() <= 1.25


def test_pairs_have_start_and_end(batches, tokenizers):
    expected = [
        (list(source), [*target, 2]) for source, target, _ in encoded(tokenizers, SIDES, LONGEST)
    ]
    assert list(batches.pairs()) == expected
    assert 150 < len(expected) < len(SIDES)


def test_epoch_has_every_pair_once(epoch, tokenizers):
    expected = Counter(encoded(tokenizers, SIDES, LONGEST))
    assert max(expected.values()) == 2
    assert Counter(unpadded(epoch)) == expected


def test_padding_is_at_the_end(epoch):
    for batch in epoch:
        for side in batch:
            real = side != 0
            assert (real[:, :-1] >= real[:, 1:]).all()
            assert (real[:-1, 0] >= real[1:, 0]).all()


def test_batch_has_its_bucket_shape(epoch):
    shapes = {(BUDGET // length, length) for length in bucket_lengths(LONGEST)}
    assert {side.shape for batch in epoch for side in batch} == shapes
    assert {len({side.shape for side in batch}) for batch in epoch} == {1}
    assert {side.dtype for batch in epoch for side in batch} == {np.dtype("int32")}


def test_no_batch_exceeds_its_budget(epoch):
    assert 0.75 * BUDGET < min(side.size for batch in epoch for side in batch)
    assert max(side.size for batch in epoch for side in batch) <= BUDGET


def test_pairs_use_shortest_bucket(epoch):
    shorter = dict(itertools.pairwise([0, *bucket_lengths(LONGEST)][::-1]))
    for source, target, _ in epoch:
        longest = np.maximum((source != 0).sum(1), (target != 0).sum(1))
        longest = longest[longest > 0]
        assert (longest <= source.shape[1]).all()
        assert (longest > shorter[source.shape[1]]).all()


def test_one_partial_batch_per_bucket(epoch):
    partial = Counter(labels.shape[1] for _, _, labels in epoch if not labels[:, 0].all())
    assert partial
    assert set(partial.values()) == {1}


def test_steps_count_the_batches(batches, epoch):
    dataset = batches.dataset()
    assert batches.survey().steps == int(dataset.cardinality()) == len(epoch)
    assert [len(taken(dataset)) for _ in range(2)] == [len(epoch)] * 2


def test_unshuffled_epochs_are_equal(batches, epoch):
    for first, second in zip(taken(batches.dataset()), epoch, strict=True):
        np.testing.assert_array_equal(first, second)


def test_survey_counts_kept_and_dropped(batches, tokenizers):
    fitting = encoded(tokenizers, SIDES, LONGEST)
    survey = batches.survey()
    assert survey.pairs == len(fitting)
    assert survey.source_tokens == sum(len(source) for source, _, _ in fitting)
    assert survey.target_tokens == sum(len(labels) for _, _, labels in fitting)
    places = [
        f"train:{i}"
        for i, sides in enumerate(SIDES, 1)
        if token_count(tokenizers, *sides) > LONGEST
    ]
    assert survey.report.dropped == len(places) == len(SIDES) - len(fitting)
    first = ", ".join(places[:3])
    assert survey.report.lines() == [
        f"dropped {len(places)} pairs over 31 tokens ({first}, … and {len(places) - 3} more)"
    ]


@pytest.mark.parametrize("side", [0, 1])
def test_pair_of_maximum_length_fits(tokenizers, side):
    sides = [("der", "der"), ("der", "der")]
    sides[1] = ("über " * 5, "der") if side == 0 else ("der", "über " * 5)
    length = token_count(tokenizers, *sides[1])
    kept = TokenBatches(Memory(sides), "train", *tokenizers, BUDGET, length)
    assert (kept.survey().pairs, kept.survey().report.lines()) == (2, [])
    assert Counter(unpadded(taken(kept.dataset()))) == Counter(encoded(tokenizers, sides, length))
    dropped = TokenBatches(Memory(sides), "train", *tokenizers, BUDGET, length - 1)
    assert (dropped.survey().pairs, dropped.survey().report.lines()) == (
        1,
        [f"dropped 1 pair over {length - 1} tokens (train:2)"],
    )
    assert len(unpadded(taken(dropped.dataset()))) == 1


def test_empty_sides_counted_apart(tokenizers):
    sides = [("der", ""), ("der Bär", "die"), ("der " * 40, "die")]
    report = Report()
    pairs = list(
        TokenBatches(Memory(sides), "validation", *tokenizers, BUDGET, LONGEST).pairs(report)
    )
    assert pairs == [
        ([*tokenizers[0].encode(["der Bär"])[0], 2], [1, *tokenizers[1].encode(["die"])[0], 2])
    ]
    assert report.lines() == [
        "dropped 1 pair with an empty side (validation:1)",
        "dropped 1 pair over 31 tokens (validation:3)",
    ]


def test_many_long_pairs_are_dropped(tokenizers):
    sides = [("der " * 20, "die")] * 1024 + [("der", "die")] * 3
    batches = TokenBatches(Memory(sides), "train", *tokenizers, 53, 11)
    assert batches.survey().report.dropped == 1024
    assert unpadded(taken(batches.dataset())) == encoded(tokenizers, [("der", "die")] * 3, 11)


def test_all_chunks_are_batched(tokenizers):
    sides = [(WORDS[i % 17], WORDS[i % 13]) for i in range(2 * 1024 + 5)]
    batches = TokenBatches(Memory(sides), "train", *tokenizers, 997, 11)
    assert Counter(unpadded(taken(batches.dataset()))) == Counter(encoded(tokenizers, sides, 11))


def test_joined_prompt_has_no_labels(tokenizers):
    both = tokenizers[0]
    pairs = Memory([("der Bär", "die"), ("zwei", "grün und")])
    batches = JoinedBatches(pairs, "train", both, both, BUDGET, LONGEST, few_shapes=True)
    (ids, labels), *others = batches.dataset().as_numpy_iterator()
    assert others == []
    assert ids.shape == labels.shape == (BUDGET // ids.shape[1], ids.shape[1])
    expected = []
    for source, target in zip(
        both.encode(["der Bär", "zwei"]), both.encode(["die", "grün und"]), strict=True
    ):
        expected.append(([1, *source, *target], [*[0] * len(source), *target, 2]))
    actual = [
        (row[row > 0].tolist(), label[: (row > 0).sum()].tolist())
        for row, label in zip(ids, labels, strict=True)
        if row.any()
    ]
    assert actual == expected
    assert (labels[ids == 0] == 0).all()


@pytest.mark.parametrize("batches_class", [TokenBatches, JoinedBatches])
def test_row_copies_are_adjacent(tokenizers, batches_class):
    once, twice = (
        batches_class(Memory(SIDES), "train", *tokenizers, BUDGET, LONGEST, copies=copies)
        for copies in (1, 2)
    )
    assert once.survey()[:5] == twice.survey()[:5]
    for (inputs, labels), (copied, copied_labels) in zip(
        once.batches(0), twice.batches(0), strict=True
    ):
        pairs = [(labels, copied_labels)]
        pairs += (
            [(inputs[name], copied[name]) for name in ("source", "target")]
            if batches_class is TokenBatches
            else [(inputs, copied)]
        )
        for ids, copy in pairs:
            np.testing.assert_array_equal(copy[::2], ids)
            np.testing.assert_array_equal(copy[1::2], ids)


def test_joined_pairs_share_a_limit(tokenizers):
    both = tokenizers[0]
    together = sum(len(ids) for ids in both.encode(["der Bär", "die"])) + 1
    fits, too_long = (
        JoinedBatches(Memory([("der Bär", "die"), ("der", "der")]), "train", both, both, 31, n)
        for n in (together, together - 1)
    )
    assert fits.survey().pairs == 2
    assert too_long.survey().report.lines() == [
        f"dropped 1 pair over {together - 1} tokens (train:1)"
    ]


def shuffled(tokenizers, seed):
    return TokenBatches(
        Memory(SIDES), "train", *tokenizers, BUDGET, LONGEST, shuffle=True, seed=seed
    ).dataset()


def test_shuffling_keeps_all_pairs(tokenizers, epoch):
    dataset = shuffled(tokenizers, seed=3)
    orders = [unpadded(epoch), unpadded(taken(dataset)), unpadded(taken(dataset))]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert Counter(orders[0]) == Counter(orders[1]) == Counter(orders[2])


def test_seed_repeats_the_epochs(tokenizers):
    first, again, other = (shuffled(tokenizers, seed) for seed in (3, 3, 5))
    epochs = [unpadded(taken(first)), unpadded(taken(first))]
    assert [unpadded(taken(again)), unpadded(taken(again))] == epochs
    assert unpadded(taken(other)) not in epochs


@pytest.mark.parametrize(
    ("sides", "why"),
    [
        ([], "it is empty"),
        ([("", "die"), ("der", " ")], r"dropped 2 pairs with an empty side \(train:1, train:2\)"),
        (
            [("", "die"), ("der " * 40, "die")],
            (
                r"dropped 1 pair with an empty side \(train:1\); dropped 1 pair over 31 tokens "
                r"\(train:2\)"
            ),
        ),
    ],
)
def test_split_without_pairs_says_why(tokenizers, sides, why):
    batches = TokenBatches(Memory(sides), "train", *tokenizers, BUDGET, LONGEST)
    with pytest.raises(
        ValueError, match=f"^data: expected pairs in memory, split 'train', got none: {why}.$"
    ):
        batches.survey()


def test_unknown_split_is_refused(tokenizers):
    batches = TokenBatches(Memory(SIDES), "test", *tokenizers, BUDGET, LONGEST)
    with pytest.raises(
        ValueError,
        match="^split: expected one of train, validation, which memory has, got 'test'; choose one",
    ):
        batches.dataset()


def test_batches_are_ragged_without_xla(tokenizers):
    batches = TokenBatches(Memory(SIDES), "train", *tokenizers, BUDGET, LONGEST)
    assert batches.few_shapes == bool(tf.config.list_physical_devices("GPU"))
    ragged = TokenBatches(Memory(SIDES), "train", *tokenizers, BUDGET, LONGEST, few_shapes=False)
    filled = TokenBatches(Memory(SIDES), "train", *tokenizers, BUDGET, LONGEST, few_shapes=True)
    assert len(ragged) <= len(filled)
    assert ragged.survey().padding < filled.survey().padding


def test_budget_fits_the_longest_pair(tokenizers):
    batches = TokenBatches(Memory(SIDES), "train", *tokenizers, 31, 31, few_shapes=True)
    assert {len(labels) for _, labels in batches.batches(0)} == {3, 2, 1}
    message = (
        "^batch_tokens: expected at least max_length=31, or the longest pairs fit no batch, "
        "got 30.$"
    )
    with pytest.raises(ValueError, match=message):
        TokenBatches(Memory(SIDES), "train", *tokenizers, 30, 31)
