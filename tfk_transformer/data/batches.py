"""Text pairs to batches, budgeted in tokens, in an order that a seed and the number of the pass decide."""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.constants import START_ID
from tfk_transformer.data.bucketing import bucket_lengths, plan, plan_few_shapes, rounded_up
from tfk_transformer.data.encoding import PairCache, PairEncoder, Shard
from tfk_transformer.datasets import Report
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

BUFFERED_PAIRS = 131_072


class Survey(NamedTuple):
    """What one pass over a split found."""

    pairs: int
    source_tokens: int
    target_tokens: int
    steps: int  # batches a pass
    padded_tokens: int  # of source and target in the batches of a pass, padding included
    report: Report  # what was dropped, and where

    @property
    def padding(self) -> float:
        """The share of padding in what the model reads."""
        return 1 - (self.source_tokens + self.target_tokens) / self.padded_tokens


class Share(NamedTuple):
    """Which part of each batch a process reads, where several train together."""

    process: int = 0
    processes: int = 1
    devices: int = 1  # of all processes; a batch has a multiple of so many rows

    def of(self, rows: int) -> slice:
        """Return the rows of this process."""
        part = rows // self.processes
        return slice(self.process * part, (self.process + 1) * part)


class TokenBatches:
    """The pairs of one split as batches for `model.fit`, by length, budgeted in tokens.

    A batch is ({"source": (B, S), "target": (B, T)}, labels (B, T)), int32: source tokens and end; start and target
    tokens; target tokens and end; zeros behind. Rows of padding, which the loss does not count, fill a batch up where its
    shape asks for more.

    The order of a pass depends on `seed` and the pass's number alone. Pairs are mixed within a buffer of about 130,000.

    Args:
        data: where pairs come from, of `datasets.load`.
        split: which of its splits.
        source_tokenizer: of the source side.
        target_tokenizer: of the target side.
        batch_tokens: tokens a batch and side, padding included.
        max_length: pairs with a side of more tokens, start or end included, are dropped and counted.
        shuffle: whether to mix the pairs, anew in each pass.
        seed: of the shuffling, and of what is sampled.
        few_shapes: pad both sides to one of a few lengths and fill every batch, so that XLA compiles a dozen shapes and not
            hundreds; else batches are as long as their longest pair, with a third of the padding.
        sampling: of subwords, see `SubwordTokenizer.encode`; 0: always the same.
        cache: folder that keeps the ids on disk, so that later passes and trainings need neither texts nor tokenizer.
        steps: batches an epoch; None: as many as a pass has.
        share: of each batch that this process reads; None: all of it.
        copies: how often each row stands in a batch, in succession; `batch_tokens` counts it once.

    Raises:
        ValueError: if a batch cannot hold one pair of `max_length` tokens, or the cache holds something else.
    """

    inputs = ("source", "target")  # names of what the model reads; none where it reads a single tensor

    def __init__(
        self,
        data,
        split: str,
        source_tokenizer: SubwordTokenizer,
        target_tokenizer: SubwordTokenizer,
        batch_tokens: int = 4096,
        max_length: int = 256,
        shuffle: bool = False,
        seed: int = 0,
        few_shapes: bool = True,
        sampling: float = 0.0,
        cache=None,
        steps: int | None = None,
        share: Share | None = None,
        copies: int = 1,
    ):
        if batch_tokens < max_length:
            raise ValueError(
                f"batch_tokens: expected at least max_length={max_length}, or the longest pairs fit no batch, got {batch_tokens}."
            )
        self.data = data
        self.split = split
        self.batch_tokens = batch_tokens
        self.max_length = max_length
        self.shuffle = shuffle
        self.seed = seed
        self.few_shapes = few_shapes
        self.steps = steps
        self.share = share or Share()
        self.copies = copies
        self.epoch = 0  # that comes next
        self.lengths = bucket_lengths(max_length)
        self._survey = None
        self._encoder = PairEncoder(data, split, source_tokenizer, target_tokenizer, max_length, self._length, sampling)
        self._pairs = self._encoder if cache is None else PairCache(cache, self._encoder)

    def pairs(self, report: Report | None = None) -> Iterator[tuple[list[int], list[int]]]:
        """Yield ids of each pair: source (S,) tokens and end; target (T+1,) start, tokens and end."""
        for sources, targets in self._encoder.chunks(report):
            yield from zip(sources, targets, strict=True)

    def survey(self) -> Survey:
        """Read the split once, to count pairs, tokens, batches and what is dropped.

        Raises:
            ValueError: if the data is broken, or nothing is left of it.
        """
        if self._survey is None:
            report, pairs, tokens, steps, padded = Report(), 0, np.zeros(2, np.int64), 0, 0
            for shard in self._buffers(report, self._random(0)):
                lengths = self._lengths(shard)
                batches = self._plan(lengths, None)
                steps += len(batches)
                padded += sum(rows * sum(widths) for rows, widths in (self._shape(lengths, places) for places in batches))
                pairs += len(shard.sides[0])
                tokens += [int(side.lengths.sum()) for side in shard.sides]
            if not steps:
                why = "; ".join(report.lines()) or "it is empty"
                raise ValueError(f"data: expected pairs in {self.data.name}, split '{self.split}', got none: {why}.")
            self._survey = Survey(pairs, int(tokens[0]), int(tokens[1]) - pairs, steps, padded, report)
        return self._survey

    def __len__(self) -> int:
        """Return the batches of an epoch."""
        return self.steps or self.survey().steps

    def batches(self, epoch: int, first: int = 0) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield the batches of an epoch, as arrays.

        Epochs follow each other through the passes. Every pass counts as many batches as the first has: where subwords are
        sampled, or pairs come in several buffers, it may have a few more or less, and these are left out or come twice.

        Args:
            epoch: its number, from 0.
            first: the number of the batch to begin with.
        """
        a_pass = self.survey().steps
        begin, end = epoch * len(self) + first, (epoch + 1) * len(self)
        for number in range(begin // a_pass, math.ceil(end / a_pass)):
            start = number * a_pass
            yield from itertools.islice(self._pass(number, a_pass), max(begin - start, 0), min(end - start, a_pass))

    def dataset(self):
        """Return the batches as a `tf.data.Dataset` of known cardinality; each time it is read, the next epoch comes, see `epoch`."""
        import tensorflow as tf

        spec = tf.TensorSpec([None, None], tf.int32)
        inputs = {name: spec for name in self.inputs} if self.inputs else spec
        batches = tf.data.Dataset.from_generator(self._next_epoch, output_signature=(inputs, spec))
        batches = batches.apply(tf.data.experimental.assert_cardinality(len(self)))
        return _without_autotuning(batches.prefetch(8))

    def sequence(self):
        """Return the batches as a `keras.utils.PyDataset`, for backends without TensorFlow."""
        from tfk_transformer.data.batch_sequence import BatchSequence

        return BatchSequence(self)

    def _next_epoch(self):
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self.batches(epoch)

    def _pass(self, number: int, count: int) -> Iterator:
        """Yield so many batches of a pass, built as they are asked for."""
        return itertools.islice(itertools.chain.from_iterable(self._once(number) for _ in range(count)), count)

    def _once(self, number: int) -> Iterator:
        random = self._random(number)
        for shard in self._buffers(None, random):
            lengths = self._lengths(shard)
            for places in self._plan(lengths, random if self.shuffle else None):
                inputs, labels = self._batch(shard, places, *self._shape(lengths, places))
                if self.copies > 1:
                    inputs = {name: self._copied(ids) for name, ids in inputs.items()} if self.inputs else self._copied(inputs)
                    labels = self._copied(labels)
                yield inputs, labels

    def _copied(self, ids):
        return np.repeat(ids, self.copies, axis=0)

    def _random(self, number: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, number))

    def _buffers(self, report, random) -> Iterator[Shard]:
        """Yield the pairs of a pass, as many at a time as are mixed."""
        together = []
        for shard in self._pairs.shards(report, random if self.shuffle else None):
            together.append(shard)
            if sum(len(part.sides[0]) for part in together) >= BUFFERED_PAIRS:
                yield Shard.joined(together)
                together = []
        if together:
            yield Shard.joined(together)

    def _lengths(self, shard: Shard) -> list[np.ndarray]:
        """Return the lengths (N,) of what the model reads, a side each."""
        sources, targets = shard.lengths
        return [sources, targets - 1]

    def _plan(self, lengths, random) -> list[np.ndarray]:
        if self.few_shapes:
            return plan_few_shapes(np.maximum.reduce(lengths), self.lengths, self.batch_tokens, random)
        return plan(lengths, self.batch_tokens, random)

    def _shape(self, lengths, places) -> tuple[int, list[int]]:
        """Return the rows of a batch, and the width of each side."""
        widths = [int(side[places].max()) for side in lengths]
        rows = len(places)
        if self.few_shapes:
            width = next(length for length in self.lengths if length >= max(widths))
            widths, rows = [width] * len(widths), self.batch_tokens // width
        return rounded_up(rows, self.share.devices), widths

    def _batch(self, shard: Shard, places, rows: int, widths):
        """Make this process's rows of a batch."""
        own = self.share.of(rows)
        places, rows = places[own], own.stop - own.start
        source = shard.sides[0].padded(places, (rows, widths[0]))
        target = shard.sides[1].padded(places, (rows, widths[1] + 1))
        labels = target[:, 1:]
        return {"source": source, "target": np.where(labels, target[:, :-1], 0)}, labels

    def _length(self, source: int, target: int) -> int:
        """Return the tokens of the longer side, of a source with its end and a target with its start and end."""
        return max(source, target - 1)


class JoinedBatches(TokenBatches):
    """The same for a model without an encoder: a pair is one sequence, its source a prompt and its target what follows.

    A batch is (ids (B, L), labels (B, L)), int32: start, source and target tokens; zeros under the source, target tokens and
    end. Loss and metrics do not count zeros, so the model is not asked to predict prompts.
    """

    inputs = ()

    def _length(self, source, target):
        return source + target - 2

    def _lengths(self, shard):
        return [np.add(*shard.lengths) - 2]

    def _batch(self, shard, places, rows, widths):
        own = self.share.of(rows)
        ids, labels = (np.zeros((own.stop - own.start, *widths), np.int32) for _ in range(2))
        for row, place in enumerate(places[own]):
            source, target = (side[place] for side in shard.sides)
            prompt, end = len(source) - 1, len(source) + len(target) - 2
            ids[row, :end] = [START_ID, *source[:-1], *target[1:-1]]
            labels[row, prompt:end] = target[1:]
        return ids, labels


def _without_autotuning(dataset):
    """Turn tf.data's autotuner off: the end of each epoch waits for its period, which grows up to a minute."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
