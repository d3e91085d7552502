"""Batches of texts with labels, for classifiers."""

import numpy as np
import pytest
from pairs_in_memory import SOURCES, Memory

from tfk_transformer.data.batches import Share
from tfk_transformer.data.labels import LabelledBatches, Labels

SIDES = [(text, "long" if len(text) > 20 else "short") for text in SOURCES]


@pytest.fixture
def labels():
    return Labels.of(label for _, label in SIDES)


def batches_of(tokenizers, labels, **options):
    return LabelledBatches(Memory(SIDES), "train", tokenizers[0], labels, 149, 61, **options)


def rows_of(batches):
    """Each text's ids with its class, in the order of the batches; rows of weight 0 must be
    padding.
    """
    for ids, classes, weights in batches:
        assert (ids.dtype, classes.dtype, weights.dtype) == (np.int32, np.int32, np.float32)
        assert not ids[weights == 0].any()
        for row, number in zip(ids[weights == 1], classes[weights == 1], strict=True):
            yield tuple(row[row > 0].tolist()), int(number)


@pytest.mark.parametrize("few_shapes", [True, False])
def test_texts_come_once_with_class(tokenizers, labels, few_shapes):
    assert labels.names == ["long", "short"]
    expected = [
        ((*ids, 2), int(label == "short"))
        for ids, (_, label) in zip(tokenizers[0].encode(SOURCES), SIDES, strict=True)
    ]
    batches = batches_of(tokenizers, labels, few_shapes=few_shapes, shuffle=True)
    assert sorted(rows_of(batches.batches(0))) == sorted(expected)
    padded = sum(ids.size for ids, _, _ in batches.batches(0))
    survey = batches.survey()
    assert (survey.pairs, survey.target_tokens, survey.padded_tokens) == (len(SIDES), 0, padded)
    assert survey.trained_tokens == survey.source_tokens == sum(len(ids) for ids, _ in expected)


def test_dataset_equals_the_batches(tokenizers, labels):
    batches = batches_of(tokenizers, labels)
    for actual, expected in zip(
        batches.dataset().as_numpy_iterator(), batches.batches(0), strict=True
    ):
        for part, required in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(part, required)


def test_processes_share_every_batch(tokenizers, labels):
    whole = batches_of(tokenizers, labels, few_shapes=False, share=Share(devices=4)).batches(0)
    parts = [
        batches_of(tokenizers, labels, few_shapes=False, share=Share(process, 2, 4)).batches(0)
        for process in range(2)
    ]
    for batch, *shares in zip(whole, *parts, strict=True):
        for array, *pieces in zip(batch, *shares, strict=True):
            np.testing.assert_array_equal(np.concatenate(pieces), array)


def test_labels_survive_saving(labels, tmp_path):
    labels.save(tmp_path / "labels.json")
    assert (tmp_path / "labels.json").read_text() == '[\n  "long",\n  "short"\n]\n'
    assert Labels.load(tmp_path / "labels.json").encode(["short", " long "]) == [[1], [0]]
