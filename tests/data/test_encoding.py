"""The ids that batches are made of: encoded from texts, or read from a cache on disk."""

import hashlib
import itertools
import json

import numpy as np
import pytest
from pairs_in_memory import BUDGET, LONGEST, SIDES, Memory, unpadded

from tfk_transformer.data import batches
from tfk_transformer.data.batches import JoinedBatches, Share, TokenBatches
from tfk_transformer.data.bucketing import round_up


def batches_of(tokenizers, **options):
    return TokenBatches(Memory(SIDES), "train", *tokenizers, BUDGET, LONGEST, **options)


def same(first, second):
    """Whether two lists of batches are equal."""
    return len(first) == len(second) and all(
        np.array_equal(a, b)
        for one, other in zip(first, second, strict=True)
        for a, b in zip(arrays(one), arrays(other), strict=True)
    )


def arrays(batch):
    inputs, labels = batch
    return [inputs["source"], inputs["target"], labels]


def real_pairs(batches):
    return unpadded([arrays(batch) for batch in batches])


@pytest.mark.parametrize("few_shapes", [True, False])
def test_cache_equals_the_texts(tokenizers, tmp_path, few_shapes, monkeypatch):
    monkeypatch.setattr(batches, "SHARD_SIZE", 50)
    monkeypatch.setattr(batches, "CHUNK_SIZE", 25)
    plain = batches_of(tokenizers, few_shapes=few_shapes)
    cached = batches_of(tokenizers, few_shapes=few_shapes, cache=tmp_path / "cache")
    assert same(list(plain.batches(0)), list(cached.batches(0)))
    assert cached.survey().report.lines() == plain.survey().report.lines() != []
    assert len(list((tmp_path / "cache").glob("*.0.ids.npy"))) == 5
    mixed = batches_of(tokenizers, few_shapes=few_shapes, cache=tmp_path / "cache", shuffle=True)
    assert sorted(real_pairs(mixed.batches(1))) == sorted(real_pairs(plain.batches(0)))
    assert real_pairs(mixed.batches(1)) != real_pairs(mixed.batches(2))


@pytest.mark.parametrize("batches_class", [TokenBatches, JoinedBatches])
def test_cache_key_is_stable(tokenizers, tmp_path, batches_class):
    """Users' caches would be refused otherwise."""
    list(
        batches_class(
            Memory(SIDES), "train", *tokenizers, BUDGET, LONGEST, cache=tmp_path / "cache"
        ).batches(0)
    )
    known = (
        f"memory\ntrain\n31\n{batches_class.__name__}._length\n".encode()
        + tokenizers[0].model
        + tokenizers[1].model
    )
    assert (
        json.loads((tmp_path / "cache" / "cache.json").read_text())["contents"]
        == hashlib.sha256(known).hexdigest()
    )


def test_a_cache_needs_no_texts(tokenizers, tmp_path):
    first = list(batches_of(tokenizers, cache=tmp_path / "cache").batches(0))
    nothing = Memory([])
    again = TokenBatches(nothing, "train", *tokenizers, BUDGET, LONGEST, cache=tmp_path / "cache")
    assert same(list(again.batches(0)), first)


def test_foreign_cache_is_refused(tokenizers, tmp_path):
    list(batches_of(tokenizers, cache=tmp_path / "cache").batches(0))
    with pytest.raises(
        ValueError, match="cache: .*cache holds other data, another split or other subwords"
    ):
        TokenBatches(
            Memory(SIDES), "validation", *tokenizers, BUDGET, LONGEST, cache=tmp_path / "cache"
        )
    (tmp_path / "other").mkdir()
    with pytest.raises(
        ValueError,
        match=(
            "cache: expected a folder that a training run wrote, or a new one, got .*other "
            "without cache.json"
        ),
    ):
        batches_of(tokenizers, cache=tmp_path / "other")
    with pytest.raises(
        ValueError, match="cache: expected the same subwords in every pass, got subword sampling"
    ):
        batches_of(tokenizers, cache=tmp_path / "new", sampling=0.1)


def test_subword_sampling_is_seeded(tokenizers):
    both = tokenizers[:1] * 2  # the other is of another type
    first, again = (batches_of(both, sampling=0.3, shuffle=True, seed=5) for _ in range(2))
    epochs = [list(first.batches(epoch)) for epoch in range(2)]
    assert same(list(again.batches(1)), epochs[1])
    assert same(list(again.batches(0)), epochs[0])
    assert not set(real_pairs(epochs[0])) >= set(real_pairs(epochs[1]))
    plain = {ids for pair in real_pairs(batches_of(both).batches(0)) for ids in pair[:1]}
    assert {ids for pair in real_pairs(epochs[0]) for ids in pair[:1]} - plain


def test_short_epochs_continue_passes(tokenizers):
    whole = batches_of(tokenizers, shuffle=True, few_shapes=False)
    count = whole.survey().steps
    short = batches_of(tokenizers, shuffle=True, few_shapes=False, steps=7)
    assert len(short) == 7
    passes = list(itertools.chain(whole.batches(0), whole.batches(1)))
    assert len(passes) == 2 * count
    epochs = list(
        itertools.chain.from_iterable(short.batches(epoch) for epoch in range(2 * count // 7))
    )
    assert same(epochs, passes[: len(epochs)])
    assert same(list(short.batches(1, first=3)), passes[10:14])


def test_processes_share_every_batch(tokenizers):
    whole = list(
        batches_of(tokenizers, shuffle=True, few_shapes=False, share=Share(devices=4)).batches(1)
    )
    shares = [
        list(
            batches_of(
                tokenizers, shuffle=True, few_shapes=False, share=Share(process, 2, 4)
            ).batches(1)
        )
        for process in range(2)
    ]
    for batch, *parts in zip(whole, *shares, strict=True):
        for side, *part_sides in zip(arrays(batch), *map(arrays, parts), strict=True):
            assert len(side) == round_up(len(side), 4)
            np.testing.assert_array_equal(np.concatenate(part_sides), side)


def test_sequence_equals_the_batches(tokenizers):
    batches = batches_of(tokenizers, shuffle=True)
    expected = [list(batches.batches(epoch)) for epoch in range(2)]
    sequence = batches.sequence()
    assert len(sequence) == len(batches)
    for epoch in range(2):
        sequence.on_epoch_begin()
        assert same([sequence[place] for place in range(len(sequence))], expected[epoch])
    assert same([sequence[4], sequence[2]], [expected[1][4], expected[1][2]])


def test_dataset_starts_at_its_epoch(tokenizers):
    batches = batches_of(tokenizers, shuffle=True)
    dataset = batches.dataset()
    batches.epoch = 3
    assert same(list(dataset.as_numpy_iterator()), list(batches.batches(3)))
    assert batches.epoch == 4


def test_padding_is_counted(tokenizers):
    for few_shapes in (True, False):
        batches = batches_of(tokenizers, few_shapes=few_shapes)
        padded = sum(inputs["source"].size + labels.size for inputs, labels in batches.batches(0))
        real = sum(
            int((inputs["source"] > 0).sum() + (labels > 0).sum())
            for inputs, labels in batches.batches(0)
        )
        assert batches.survey().padded_tokens == padded
        assert batches.survey().padding == pytest.approx(1 - real / padded)
