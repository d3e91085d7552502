"""The batches: real pairs as this project batches them, or random ids."""

import functools
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from trainers.counts import padding_share
from trainers.task import Batch

START_ID, END_ID, FIRST_PIECE = 1, 2, 4
LARGEST_LEARNED = 8000  # pieces; the vocabulary of a small corpus cannot be larger
BUCKET = 4  # random pairs are padded to multiples of it
MEDIAN_LENGTH, SOURCE_SPREAD, TARGET_SPREAD = 15, 0.35, 0.2


class Epoch(NamedTuple):
    """An epoch of real pairs, and the time that it took to make its batches, without training."""

    batches: list[Batch]
    first_seconds: float  # of the first time through, when texts are cut into subwords
    seconds: float  # of the second

    def line(self) -> str:
        """Return its padding and times in words."""
        first, later = (
            1000 * seconds / len(self.batches) for seconds in (self.first_seconds, self.seconds)
        )
        sides = ", ".join(
            f"{name} {padding_share(self.batches, side):.1%}"
            for name, side in (("source", "source"), ("target", "labels"))
        )
        return (
            f"An epoch has {len(self.batches):,} batches; padding is "
            f"{padding_share(self.batches):.1%} of their tokens ({sides}). "
            f"Made alone, a batch takes {first:.2f} ms in the first epoch and {later:.2f} ms in "
            "the second."
        )


@functools.cache
def real_epoch(spec: str, vocab_size: int, batch_tokens: int, max_length: int) -> Epoch:
    """Return the training pairs of a data set as `TokenBatches` gives them to `fit`; needs
    TensorFlow.
    """
    from tfk_transformer.runtime_environment import load_tensorflow

    load_tensorflow()
    from tfk_transformer import datasets
    from tfk_transformer.data.batches import TokenBatches

    data, tokenizer = datasets.load(spec), _tokenizer(spec, min(vocab_size, LARGEST_LEARNED))
    batches = TokenBatches(
        data,
        "train",
        tokenizer,
        tokenizer,
        batch_tokens,
        max_length,
        shuffle=True,
        few_shapes=False,
    )
    started = time.perf_counter()
    dataset = batches.dataset()
    for _ in dataset:
        pass
    again = time.perf_counter()
    for _ in dataset:
        pass
    ended = time.perf_counter()
    found = [
        Batch(inputs["source"], inputs["target"], labels)
        for inputs, labels in dataset.as_numpy_iterator()
    ]
    if vocab_size > LARGEST_LEARNED:
        found = [_with_random_ids(batch, vocab_size, seed) for seed, batch in enumerate(found)]
    return Epoch(found, again - started, ended - again)


@functools.cache
def _tokenizer(spec: str, vocab_size: int):
    from tfk_transformer import datasets
    from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

    pairs = datasets.load(spec).pairs("train")
    return SubwordTokenizer.train(
        (text for pair in pairs for text in (pair.source, pair.target)), vocab_size
    )


def _with_random_ids(batch: Batch, vocab_size: int, seed: int) -> Batch:
    """Return a batch of the same lengths whose pieces are drawn from a larger vocabulary."""
    draw = np.random.default_rng(seed)
    source = _redrawn(batch.source, draw, vocab_size)
    labels = _redrawn(batch.labels, draw, vocab_size)
    target = np.where(batch.target >= FIRST_PIECE, np.roll(labels, 1, axis=1), batch.target)
    return Batch(source, target.astype("int32"), labels)


def _redrawn(ids, draw, vocab_size):
    drawn = draw.integers(FIRST_PIECE, vocab_size, ids.shape, dtype="int32")
    return np.where(ids >= FIRST_PIECE, drawn, ids).astype("int32")


def random_batches(vocab_size: int, batch_tokens: int, max_length: int, wanted: int) -> list[Batch]:
    """Return batches of random pairs, for machines without data or TensorFlow.

    A source has 15 exp(0.35 x) tokens and its target exp(0.2 y) times as many, x and y normally
    distributed, between 3 and
    `max_length`: about the lengths of captions in subwords. Ids are uniform over the vocabulary.
    Pairs are padded to the next multiple of 4 of their longer side, and each batch is full.

    Args:
        vocab_size: ids are below it.
        batch_tokens: of a batch and side, padding included.
        max_length: of a side, its end included.
        wanted: how many batches.
    """
    draw = np.random.default_rng(0)
    batches, waiting = [], defaultdict(list)
    while len(batches) < wanted:
        source = _clip(MEDIAN_LENGTH * np.exp(SOURCE_SPREAD * draw.normal()), max_length)
        target = _clip(source * np.exp(TARGET_SPREAD * draw.normal()), max_length)
        length = min(-(-max(source, target) // BUCKET) * BUCKET, max_length)
        waiting[length].append((source, target))
        if len(waiting[length]) == batch_tokens // length:
            batches.append(_random_batch(waiting.pop(length), length, vocab_size, draw))
    return batches


def _clip(length: float, max_length: int) -> int:
    return int(min(max(round(length), 3), max_length))


def _random_batch(pairs, length: int, vocab_size: int, draw) -> Batch:
    source, labels = (
        _random_rows(np.array(lengths), length, vocab_size, draw)
        for lengths in zip(*pairs, strict=True)
    )
    starts = np.full((len(labels), 1), START_ID, "int32")
    target = np.concatenate([starts, np.where(labels == END_ID, 0, labels)[:, :-1]], axis=1)
    return Batch(source, target, labels)


def _random_rows(lengths, length: int, vocab_size: int, draw):
    """Return int32 (B, length): pieces, an end, zeros behind."""
    places = np.arange(length)[None, :]
    ids = draw.integers(FIRST_PIECE, vocab_size, (len(lengths), length), dtype="int32")
    ids = np.where(places < lengths[:, None] - 1, ids, 0)
    return np.where(places == lengths[:, None] - 1, END_ID, ids).astype("int32")


def spread(batches: Iterable[Batch], count: int) -> Sequence[Batch]:
    """Choose batches that stand for all: evenly spaced in order of their length, then mixed."""
    ordered = sorted(
        batches, key=lambda batch: (batch.labels.shape[1], int((batch.labels != 0).sum()))
    )
    places = np.linspace(0, len(ordered), min(count, len(ordered)), endpoint=False) + len(
        ordered
    ) / (2 * min(count, len(ordered)))
    chosen = [ordered[int(place)] for place in places]
    return [chosen[i] for i in np.random.default_rng(0).permutation(len(chosen))]
