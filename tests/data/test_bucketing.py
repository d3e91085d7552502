import numpy as np
import pytest

from tfk_transformer.data.bucketing import bucket_lengths, plan, plan_few_shapes, round_up

RANDOM = np.random.default_rng(3)
SOURCES = RANDOM.integers(2, 31, 997)
TARGETS = np.clip(SOURCES + RANDOM.integers(-4, 5, 997), 2, 31)
BUDGET = 149


@pytest.mark.parametrize("sides", [[SOURCES, TARGETS], [SOURCES]], ids=["two sides", "one"])
@pytest.mark.parametrize("seed", [None, 1])
def test_plan_covers_pairs_in_budget(sides, seed):
    batches = plan(sides, BUDGET, None if seed is None else np.random.default_rng(seed))
    assert sorted(np.concatenate(batches).tolist()) == list(range(997))
    assert (
        max(len(places) * max(side[places].max() for side in sides) for places in batches) <= BUDGET
    )


def test_similar_lengths_are_grouped():
    batches = plan([SOURCES, TARGETS], BUDGET, np.random.default_rng(0))
    real = SOURCES.sum() + TARGETS.sum()
    padded = sum(
        len(places) * (SOURCES[places].max() + TARGETS[places].max()) for places in batches
    )
    assert 1 - real / padded < 0.08
    assert max(np.ptp(TARGETS[places]) for places in batches) <= 2


def test_batch_count_ignores_the_seed():
    counts = {
        len(plan([SOURCES, TARGETS], BUDGET, np.random.default_rng(seed))) for seed in range(5)
    }
    assert len(counts) == 1


def test_seed_mixes_pairs_and_batches():
    first, second = (
        plan([SOURCES, TARGETS], BUDGET, np.random.default_rng(seed)) for seed in (1, 2)
    )
    assert {frozenset(places.tolist()) for places in first} != {
        frozenset(places.tolist()) for places in second
    }
    assert [TARGETS[places].max() for places in first] != sorted(
        TARGETS[places].max() for places in first
    )


def test_few_shapes_fill_batches():
    buckets = bucket_lengths(31)
    batches = plan_few_shapes(SOURCES, buckets, BUDGET, np.random.default_rng(1))
    assert sorted(np.concatenate(batches).tolist()) == list(range(997))
    for bucket, shorter in zip(buckets, [0, *buckets], strict=False):
        sizes = [len(places) for places in batches if shorter < SOURCES[places].max() <= bucket]
        assert sizes
        assert sorted(sizes)[1:] == [BUDGET // bucket] * (len(sizes) - 1)


def test_no_pairs_make_no_batches():
    assert plan([np.array([], int)] * 2, BUDGET) == []
    assert plan_few_shapes(np.array([], int), [8], BUDGET) == []


def test_round_up_to_a_multiple():
    assert [round_up(count, 4) for count in (0, 1, 4, 5)] == [0, 4, 4, 8]
