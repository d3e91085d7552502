"""Batches of text pairs for `model.fit`, within a budget of tokens."""

import hashlib
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from tfk_transformer.constants import END_ID, START_ID
from tfk_transformer.data import bucketing
from tfk_transformer.data.bucketing import Batch, Share, Survey
from tfk_transformer.data.encoding import Ids, PairCache, Rows, Shard, TextEncoder, join_shards
from tfk_transformer.datasets import Report, Source, load
from tfk_transformer.runtime_environment import keep_tensor_memory, uses_xla

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

CHUNK_SIZE = 1024  # pairs that are encoded together
SHARD_SIZE = 32_768  # pairs
BUFFERED_PAIRS = 131_072
PREDICTION_CHUNK_SIZE = 256  # pairs whose predictions are in RAM at the same time

Length = TypeVar("Length", int, np.ndarray)


class TokenBatches:
    """Batches of the pairs of one split for `model.fit`, with pairs of similar length.

    A batch is `({"source": (B, S), "target": (B, T)}, labels (B, T))`, all int32. A row of "source"
    has the source tokens and the end token. A row of "target" has the start token and the target
    tokens. A row of labels has the target tokens and the end token. Rows are padded with zeros on
    the right. Rows of zeros, which the loss does not count, fill a batch up to its shape.

    The order of a pass depends only on `seed` and the number of the pass. Pairs are shuffled within
    a buffer of about 130,000.

    `fit` and `evaluate` of the models read the batches directly.

    Args:
        data: the source of the pairs, from `datasets.load`, or the argument of `load`, such as a
            list of pairs.
        split: the name of the split.
        source_tokenizer: the tokenizer of the source side.
        target_tokenizer: the tokenizer of the target side.
        batch_tokens: maximum number of tokens per batch and side, padding included.
        max_length: maximum number of tokens of a side, start or end token included. Longer pairs
            are dropped and counted.
        shuffle: whether to shuffle the pairs, in another order in each pass.
        seed: seed of the shuffling and of the subword sampling.
        few_shapes: whether both sides are padded to one of a dozen lengths and all batches are
            filled up, so that XLA compiles a dozen shapes instead of hundreds. If False, batches
            are as long as their longest pair, which needs a third of the padding. Defaults to None:
            True with JAX, and with TensorFlow on a GPU or TPU.
        sampling: strength of subword sampling; see `SubwordTokenizer.encode`. 0: no sampling.
        cache: folder for the ids, so that later passes and training runs need neither texts nor
            tokenizer.
        steps: number of batches in an epoch. None: one pass over the data.
        share: the part of each batch that this process reads. None: the whole batch.
        copies: number of successive copies of each row in a batch. `batch_tokens` counts a row
            once.

    Raises:
        ValueError: if a batch cannot hold one pair of `max_length` tokens, or the cache contains
            other data.
    """

    # A part of the fingerprint of caches, so it must not change.
    layout: ClassVar[str] = "TokenBatches._length"

    def __init__(
        self,
        data: Source | str | Iterable[Any],
        split: str,
        source_tokenizer: TextEncoder,
        target_tokenizer: TextEncoder,
        batch_tokens: int = 4096,
        max_length: int = 256,
        shuffle: bool = False,
        seed: int = 0,
        few_shapes: bool | None = None,
        sampling: float = 0.0,
        cache: str | Path | None = None,
        steps: int | None = None,
        share: Share | None = None,
        copies: int = 1,
    ):
        if batch_tokens < max_length:
            raise ValueError(
                f"batch_tokens: expected at least max_length={max_length}, or the longest pairs "
                f"fit no batch, got {batch_tokens}."
            )
        keep_tensor_memory()  # a script makes its batches before its model: TensorFlow starts later
        self.data = load(data)
        self.split = split
        self.batch_tokens = batch_tokens
        self.max_length = max_length
        self.shuffle = shuffle
        self.seed = seed
        self.few_shapes = uses_xla() if few_shapes is None else few_shapes
        self.steps = steps
        self.share = share or Share()
        self.copies = copies
        self.epoch = 0  # the number of the next epoch
        self.lengths = bucketing.bucket_lengths(max_length)
        self._survey: Survey | None = None
        self._tokenizers = (source_tokenizer, target_tokenizer)
        self._sampling = sampling
        if cache is not None and sampling:
            raise ValueError(
                "cache: expected the same subwords in every pass, got subword sampling; leave out "
                "the cache or set the sampling to 0."
            )
        self._shards = self._encode
        if cache is not None:
            self._shards = PairCache(cache, self._fingerprint(), self._encode).shards

    def pairs(self, report: Report | None = None) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the ids of each pair, in the order of the data.

        Args:
            report: counts the dropped pairs.

        Returns:
            Pairs of the source tokens with the end token (S,), and the target tokens with start and
            end tokens (T+1,).
        """
        for sources, targets in self._chunks(report):
            yield from zip(sources, targets, strict=True)

    def predict(self, model: "keras.Model", report: Report | None = None) -> Iterator[np.ndarray]:
        """Yield the model's prediction for each pair, in the order of the data.

        Unlike the results of `keras.Model.predict`, whose rows come in the order of the batches and
        with padding, the predictions match the pairs of `pairs()` one by one, and have no padding.
        They are computed in batches of pairs of similar lengths.

        Args:
            model: reads these batches.
            report: counts the dropped pairs, which have no prediction.

        Returns:
            For each pair, logits (or probabilities) float (T, vocab_size), for its T labels.

        Raises:
            ValueError: if several processes share the batches.
        """
        if self.share.processes > 1:
            raise ValueError(
                "predict: expected batches of a single process, got a share of "
                f"{self.share.processes}; leave out `share`."
            )
        for sources, targets in self._chunks(report):
            for first in range(0, len(sources), PREDICTION_CHUNK_SIZE):
                chunk = slice(first, first + PREDICTION_CHUNK_SIZE)
                shard = (Rows.of(sources[chunk]), Rows.of(targets[chunk]))
                yield from self._predictions(model, shard)

    def _predictions(self, model: "keras.Model", shard: Shard) -> Iterator[np.ndarray]:
        lengths = self._input_lengths(*(side.lengths for side in shard))[-1]
        predictions: dict[int, np.ndarray] = {}
        for indices, rows, widths in self._plan(shard, None):
            inputs = self._batch(shard, indices, rows, widths)[0]
            outputs = np.asarray(model.predict_on_batch(inputs))
            # Rows of padding are the last rows.
            for index, output in zip(indices.tolist(), outputs, strict=False):
                # A classifier's prediction (num_classes,) has no positions, and no padding.
                predictions[index] = output[: lengths[index]] if output.ndim > 1 else output
        return (predictions[index] for index in range(len(lengths)))

    def survey(self) -> Survey:
        """Read the split once, and count pairs, tokens, batches and dropped pairs.

        Raises:
            ValueError: if the data is broken, or no pairs are left.
        """
        if self._survey is None:
            report = Report()
            pairs = steps = padded_tokens = 0
            tokens = np.zeros(2, np.int64)
            for shard in self._buffers(report, np.random.default_rng((self.seed, 0))):
                for _, rows, widths in self._plan(shard, None):
                    padded_tokens += rows * sum(widths)
                    steps += 1
                pairs += len(shard[0])
                tokens += self._token_counts(shard)
            if not steps:
                reason = "; ".join(report.lines()) or "it is empty"
                raise ValueError(
                    f"data: expected pairs in {self.data.name}, split '{self.split}', got none: "
                    f"{reason}."
                )
            sources, targets = tokens.tolist()
            self._survey = Survey(pairs, sources, targets, steps, padded_tokens, report)
        return self._survey

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self.steps or self.survey().steps

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, as arrays.

        If `steps` is set, an epoch starts at the end of the previous epoch, within a pass or in the
        next one. All passes have the number of batches of the first pass. If subwords are sampled,
        or the pairs fill several buffers, a pass may produce a few more or fewer batches: surplus
        batches are left out, and the first batches are repeated in place of missing ones.

        Args:
            epoch: number of the epoch, from 0.
            first: number of the batch to start with.
        """
        pass_steps = self.survey().steps
        begin = epoch * len(self) + first
        end = (epoch + 1) * len(self)
        for number in range(begin // pass_steps, math.ceil(end / pass_steps)):
            start = number * pass_steps
            repeated = itertools.chain.from_iterable(self._pass(number) for _ in range(pass_steps))
            yield from itertools.islice(
                repeated, max(begin - start, 0), min(end - start, pass_steps)
            )

    def dataset(self) -> "tf.data.Dataset":
        """Return the batches as a `tf.data.Dataset` of known cardinality.

        Each iteration yields the next epoch, whose number is in `epoch`.
        """
        import tensorflow as tf

        def next_epoch() -> Iterator[Batch]:
            self.epoch += 1
            return self.batches(self.epoch - 1)

        # The arrays of a batch without rows have its types.
        widths = [0] * len(self._input_lengths(1, 1))
        empty = self._batch((Rows.of([]), Rows.of([])), np.zeros(0, np.int64), 0, widths)
        signature = tf.nest.map_structure(
            lambda array: tf.TensorSpec([None] * array.ndim, array.dtype), empty
        )
        batches = tf.data.Dataset.from_generator(next_epoch, output_signature=signature)
        batches = batches.apply(tf.data.experimental.assert_cardinality(len(self)))
        options = tf.data.Options()
        # With the autotuner, the end of each epoch waits for its period, which grows to a minute.
        options.autotune.enabled = False
        return batches.prefetch(8).with_options(options)

    def sequence(self) -> "keras.utils.PyDataset":
        """Return the batches as a `keras.utils.PyDataset`, for backends without TensorFlow.

        Only reading in order is fast.
        """
        import keras

        source = self

        class BatchSequence(keras.utils.PyDataset):
            _epoch = source.epoch
            _next_index: int | None = None  # of the next batch in `_batches`

            def __len__(self) -> int:
                return len(source)

            def __getitem__(self, index: int) -> Batch:
                if index != self._next_index:
                    self._batches = source.batches(self._epoch, index)
                self._next_index = index + 1
                return next(self._batches)

            def on_epoch_begin(self) -> None:
                self._epoch = source.epoch
                self._next_index = None
                source.epoch += 1

        return BatchSequence()

    def _fingerprint(self) -> str:
        """Return a hash of everything that the ids depend on, except the texts.

        Caches on disk contain this hash, so its input must not change from version to version.
        """
        parts = (self.data.name, self.split, self.max_length, self.layout)
        lines = [f"{part}\n".encode() for part in parts]
        models = [tokenizer.model for tokenizer in self._tokenizers]
        return hashlib.sha256(b"".join(lines + models)).hexdigest()

    def _chunks(self, report: Report | None = None, seed: int = 0) -> Iterator[tuple[Ids, Ids]]:
        """Yield the ids of about a thousand pairs at a time, with start and end tokens."""
        pairs = self.data.pairs(self.split, report)
        chunks = iter(lambda: list(itertools.islice(pairs, CHUNK_SIZE)), [])
        for number, chunk in enumerate(chunks):
            texts = ([pair.source for pair in chunk], [pair.target for pair in chunk])
            seeds = np.random.SeedSequence((seed, number)).generate_state(2).tolist()
            source_ids, target_ids = (
                tokenizer.encode(side, self._sampling, side_seed)
                for tokenizer, side, side_seed in zip(self._tokenizers, texts, seeds, strict=True)
            )
            sources = [[*ids, END_ID] for ids in source_ids]
            targets = [[START_ID, *ids, END_ID] for ids in target_ids]
            fits = [
                max(self._input_lengths(len(source), len(target))) <= self.max_length
                for source, target in zip(sources, targets, strict=True)
            ]
            for pair in itertools.compress(chunk, map(operator.not_, fits)):
                if report is not None:
                    report.drop(f"over {self.max_length} tokens", pair.where)
            yield list(itertools.compress(sources, fits)), list(itertools.compress(targets, fits))

    def _encode(
        self, report: Report | None = None, random: np.random.Generator | None = None
    ) -> Iterator[Shard]:
        """Yield all pairs in the order of the data; `random` seeds the subword sampling."""
        seed = 0 if random is None else int(random.integers(2**31))
        chunks = self._chunks(report, seed)
        shards = ((Rows.of(sources), Rows.of(targets)) for sources, targets in chunks)
        while parts := list(itertools.islice(shards, SHARD_SIZE // CHUNK_SIZE)):
            yield join_shards(parts)

    def _pass(self, number: int) -> Iterator[Batch]:
        random = np.random.default_rng((self.seed, number))
        for shard in self._buffers(None, random):
            for indices, rows, widths in self._plan(shard, random if self.shuffle else None):
                part = self.share.of(rows)
                repeated = np.repeat(indices[part], self.copies)
                yield self._batch(shard, repeated, (part.stop - part.start) * self.copies, widths)

    def _buffers(self, report: Report | None, random: np.random.Generator) -> Iterator[Shard]:
        """Yield the pairs of a pass in buffers, which are shuffled one by one."""
        buffer: list[Shard] = []
        for shard in self._shards(report, random if self.shuffle else None):
            buffer.append(shard)
            if sum(len(part[0]) for part in buffer) >= BUFFERED_PAIRS:
                yield join_shards(buffer)
                buffer = []
        if buffer:
            yield join_shards(buffer)

    def _input_lengths(self, source: Length, target: Length) -> tuple[Length, ...]:
        """Return the length of a pair in each of the model's inputs, without padding.

        The source counts with its end token, the target with start and end tokens.
        """
        return source, target - 1

    def _token_counts(self, shard: Shard) -> tuple[int, int]:
        """Return the numbers of source and target tokens, end tokens included."""
        sources, targets = (int(side.lengths.sum()) for side in shard)
        return sources, targets - len(shard[1])

    def _plan(
        self, shard: Shard, random: np.random.Generator | None
    ) -> Iterator[tuple[np.ndarray, int, list[int]]]:
        """Yield for each batch the indices of its pairs, its rows, and the widths of its inputs."""
        lengths = self._input_lengths(*(side.lengths for side in shard))
        batches = (
            bucketing.plan_few_shapes(
                np.maximum.reduce(lengths), self.lengths, self.batch_tokens, random
            )
            if self.few_shapes
            else bucketing.plan(lengths, self.batch_tokens, random)
        )
        for indices in batches:
            widths = [int(side[indices].max()) for side in lengths]
            rows = len(indices)
            if self.few_shapes:
                width = next(length for length in self.lengths if length >= max(widths))
                widths = [width] * len(widths)
                rows = self.batch_tokens // width
            yield indices, bucketing.round_up(rows, self.share.devices), widths

    def _batch(self, shard: Shard, indices: np.ndarray, rows: int, widths: Sequence[int]) -> Batch:
        """Return the pairs at `indices` as a batch. Rows of zeros fill it up to `rows`."""
        source = shard[0].padded(indices, (rows, widths[0]))
        target = shard[1].padded(indices, (rows, widths[1] + 1))
        labels = target[:, 1:]
        return {"source": source, "target": np.where(labels, target[:, :-1], 0)}, labels


class JoinedBatches(TokenBatches):
    """Batches for a decoder-only model: the source is the prompt, the target its continuation.

    A batch is `(ids (B, L), labels (B, L))`, both int32. A row of ids has the start token, the
    source tokens and the target tokens. A row of labels has zeros at the positions of the prompt,
    then the target tokens and the end token. Loss and metrics do not count zeros, so the model does
    not learn to predict prompts.
    """

    layout: ClassVar[str] = "JoinedBatches._length"

    def _input_lengths(self, source: Length, target: Length) -> tuple[Length, ...]:
        return (source + target - 2,)

    def _batch(self, shard: Shard, indices: np.ndarray, rows: int, widths: Sequence[int]) -> Batch:
        ids, labels = (np.zeros((rows, *widths), np.int32) for _ in range(2))
        for row, index in enumerate(indices):
            source, target = (side[index] for side in shard)
            end = len(source) + len(target) - 2
            ids[row, :end] = [START_ID, *source[:-1], *target[1:-1]]
            labels[row, len(source) - 1 : end] = target[1:]
        return ids, labels
