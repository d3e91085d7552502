"""The cache that `train` is given: all that it needs of its data."""

import numpy as np
import pytest

from tfk_transformer.data.batches import JoinedBatches, Share, TokenBatches
from tfk_transformer.datasets import load
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.data_cache import Prepared, PreparedSource
from tfk_transformer.training.recipe import Recipe


@pytest.fixture
def recipe(tmp_path):
    random = np.random.default_rng(3)
    for side in "ab":
        texts = (" ".join(random.choice(["der", "die", "Bär", "grün"], random.integers(1, 9))) for _ in range(157))
        (tmp_path / side).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return Recipe(data=f"files:{tmp_path / 'a'},{tmp_path / 'b'}", vocab_size=31, tokenizer="char", max_length=29, batch_tokens=173)


def batches_of(recipe, prepared, source=None, kind=TokenBatches, **more):
    tokenizer = prepared.tokenizers()[0] if prepared.is_whole else learned(recipe)
    ids = prepared.ids("train")
    return kind(source or prepared.source(), "train", tokenizer, tokenizer, 173, 29, shuffle=True, seed=5, cache=ids, **more), tokenizer


def learned(recipe):
    return SubwordTokenizer.train((text for pair in load(recipe.data).pairs("train") for text in pair[:2]), 31, "char")


@pytest.fixture
def whole(recipe, tmp_path):
    """A cache as a training leaves it, and the batches that the training saw; the texts are gone."""
    prepared = Prepared(tmp_path / "cache", recipe)
    batches, tokenizer = batches_of(recipe, prepared)
    seen = [*batches.batches(0), *batches.batches(1)]
    probes = prepared.probes(batches)
    prepared.complete((tokenizer, tokenizer), probes)
    for side in "ab":
        (tmp_path / side).unlink()
    return prepared, seen, probes


def assert_same(one, other):
    assert len(one) == len(other)
    for (inputs, labels), (more_inputs, more_labels) in zip(one, other, strict=True):
        np.testing.assert_array_equal(inputs["source"], more_inputs["source"])
        np.testing.assert_array_equal(inputs["target"], more_inputs["target"])
        np.testing.assert_array_equal(labels, more_labels)


def test_the_cache_gives_the_same_batches_without_the_texts(recipe, whole, tmp_path):
    prepared, seen, probes = whole
    again = Prepared(tmp_path / "cache", recipe)
    assert again.is_whole
    batches, _ = batches_of(recipe, again)
    assert batches.survey().pairs == 157 - batches.survey().report.dropped
    assert_same([*batches.batches(0), *batches.batches(1)], seen)
    assert again.probes(batches) == probes
    assert len(probes) == 128


def test_a_keras_dataset_reads_the_cache_epoch_after_epoch(recipe, whole):
    """As `fit` does: places in order, and the end of an epoch between."""
    prepared, seen, _ = whole
    sequence = batches_of(recipe, prepared)[0].sequence()
    read = []
    for _ in range(2):
        sequence.on_epoch_begin()
        read += [sequence[place] for place in range(len(sequence))]
    assert_same(read, seen)


@pytest.mark.parametrize("kind", [TokenBatches, JoinedBatches])
def test_the_shares_of_all_processes_are_the_batches_with_rows_for_every_device(recipe, tmp_path, kind):
    prepared = Prepared(None, recipe)
    shares = [Share(0, 1, 6), *(Share(process, 3, 6) for process in range(3))]
    whole, *parts = ([labels for _, labels in batches_of(recipe, prepared, kind=kind, share=share)[0].batches(0)] for share in shares)
    assert {len(labels) % 6 for labels in whole} == {0}
    for labels, *rows in zip(whole, *parts, strict=True):
        assert len({part.shape for part in rows}) == 1
        np.testing.assert_array_equal(np.concatenate(rows), labels)


def test_a_cache_of_another_recipe_is_refused(recipe, whole, tmp_path):
    with pytest.raises(ValueError, match=r"cache: .*cache was made with max_length=29, vocab_size=31; name another folder, or remove it\."):
        Prepared(tmp_path / "cache", recipe.replace(vocab_size=37, max_length=23))


def test_texts_are_read_where_bleu_is_measured(recipe, whole, tmp_path):
    recipe = recipe.replace(evaluate_every=1)
    assert not isinstance(Prepared(tmp_path / "cache", recipe).source(), PreparedSource)
    assert isinstance(whole[0].source(), PreparedSource)


def test_texts_that_are_not_there_are_not_pretended(whole):
    with pytest.raises(ValueError, match="cache: expected no need of texts, got a question for those of files:.*, split 'train'"):
        list(whole[0].source().pairs("train"))
