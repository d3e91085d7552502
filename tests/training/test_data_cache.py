"""The data cache of `train`: everything that training needs of its data."""

import numpy as np
import pytest

from tfk_transformer.data.batches import JoinedBatches, Share, TokenBatches
from tfk_transformer.datasets import Pair, Source, load
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.data import CachedSource, DataCache, read_digests
from tfk_transformer.training.recipe import Recipe


@pytest.fixture
def recipe(tmp_path):
    random = np.random.default_rng(3)
    for side in "ab":
        texts = (
            " ".join(random.choice(["der", "die", "Bär", "grün"], random.integers(1, 9)))
            for _ in range(157)
        )
        (tmp_path / side).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return Recipe(
        data=f"files:{tmp_path / 'a'},{tmp_path / 'b'}",
        vocab_size=31,
        tokenizer="char",
        max_length=29,
        batch_tokens=173,
    )


def batches_of(recipe, cache, source=None, batches_class=TokenBatches, **more):
    tokenizer = cache.tokenizers()[0] if cache.complete_folder else learned(recipe)
    ids = cache.folder and cache.folder / "train"
    return batches_class(
        source or cache.source(recipe.data),
        "train",
        tokenizer,
        tokenizer,
        173,
        29,
        shuffle=True,
        seed=5,
        cache=ids,
        **more,
    ), tokenizer


def learned(recipe):
    return SubwordTokenizer.train(
        (text for pair in load(recipe.data).pairs("train") for text in pair[:2]), 31, "char"
    )


@pytest.fixture
def whole(recipe, tmp_path):
    """A cache as a training leaves it, and the batches that the training saw; the texts are
    gone.
    """
    cache = DataCache(tmp_path / "cache", recipe)
    batches, tokenizer = batches_of(recipe, cache)
    seen = [*batches.batches(0), *batches.batches(1)]
    probes = cache.probes(batches)
    cache.complete((tokenizer, tokenizer), probes, cache.digests())
    for side in "ab":
        (tmp_path / side).unlink()
    return cache, seen, probes


def assert_same(one, other):
    assert len(one) == len(other)
    for (inputs, labels), (more_inputs, more_labels) in zip(one, other, strict=True):
        np.testing.assert_array_equal(inputs["source"], more_inputs["source"])
        np.testing.assert_array_equal(inputs["target"], more_inputs["target"])
        np.testing.assert_array_equal(labels, more_labels)


def test_cache_gives_same_batches(recipe, whole, tmp_path):
    cache, seen, probes = whole
    again = DataCache(tmp_path / "cache", recipe)
    assert again.complete_folder
    batches, _ = batches_of(recipe, again)
    assert batches.survey().pairs == 157 - batches.survey().report.dropped
    assert_same([*batches.batches(0), *batches.batches(1)], seen)
    assert again.probes(batches) == probes
    assert len(probes) == 128


def test_sequence_reads_cached_epochs(recipe, whole):
    """As `fit` does: places in order, and the end of an epoch between."""
    cache, seen, _ = whole
    sequence = batches_of(recipe, cache)[0].sequence()
    read = []
    for _ in range(2):
        sequence.on_epoch_begin()
        read += [sequence[place] for place in range(len(sequence))]
    assert_same(read, seen)


@pytest.mark.parametrize("batches_class", [TokenBatches, JoinedBatches])
def test_process_shares_form_batches(recipe, tmp_path, batches_class):
    cache = DataCache(None, recipe)
    shares = [Share(0, 1, 6), *(Share(process, 3, 6) for process in range(3))]
    whole, *parts = (
        [
            labels
            for _, labels in batches_of(recipe, cache, batches_class=batches_class, share=share)[
                0
            ].batches(0)
        ]
        for share in shares
    )
    assert {len(labels) % 6 for labels in whole} == {0}
    for labels, *rows in zip(whole, *parts, strict=True):
        assert len({part.shape for part in rows}) == 1
        np.testing.assert_array_equal(np.concatenate(rows), labels)


def test_cached_probes_have_one_line(recipe, tmp_path):
    """A `tfds:` source may have sentences of several lines."""

    class Lines(Source):
        splits = ("train",)

        def _read(self, split):
            return (Pair(text, "grün", f"{split}:{text}") for text in ("der\nBär", "die\r", "grün"))

    cache = DataCache(tmp_path / "cache", recipe)
    batches, tokenizer = batches_of(recipe, cache, source=Lines("lines"))
    cache.complete((tokenizer, tokenizer), cache.probes(batches), cache.digests())
    again = DataCache(tmp_path / "cache", recipe).probes(batches)
    assert again == ["der Bär", "die ", "grün"]
    assert tokenizer.encode(again) == tokenizer.encode(["der\nBär", "die\r", "grün"])


def test_cache_refuses_other_recipe(recipe, whole, tmp_path):
    with pytest.raises(
        ValueError,
        match=(
            r"cache: .*cache was made with max_length=29, vocab_size=31; name another folder, "
            r"or remove this one\."
        ),
    ):
        DataCache(tmp_path / "cache", recipe.replace(vocab_size=37, max_length=23))


def test_bleu_needs_the_texts(recipe, whole, tmp_path):
    recipe = recipe.replace(evaluate_every=1)
    with pytest.raises(
        ValueError, match="two parallel text files, got: .*a: not found; .*b: not found"
    ):
        DataCache(tmp_path / "cache", recipe).source(recipe.data)
    assert isinstance(whole[0].source(recipe.data), CachedSource)


def test_cached_source_refuses_texts(recipe, whole):
    with pytest.raises(
        ValueError,
        match=(
            "cache: expected that only ids are read, got a request for the texts of files:.*, "
            "split 'train'"
        ),
    ):
        list(whole[0].source(recipe.data).pairs("train"))


def test_changed_texts_are_refused(recipe, whole, tmp_path):
    kept = DataCache(tmp_path / "cache", recipe).digests()  # without the texts
    assert kept == read_digests(tmp_path / "cache")
    for side in "ab":
        (tmp_path / side).write_text("der Bär\n")
    message = "cache: expected the data that .*/cache was made with, got other texts for train and"
    with pytest.raises(ValueError, match=message):
        DataCache(tmp_path / "cache", recipe).digests()
