"""Text pairs to batches of few shapes, budgeted in tokens."""

import itertools
import operator
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tfk_transformer.config import END_ID, PAD_ID, START_ID
from tfk_transformer.datasets import Report
from tfk_transformer.tokenizers import SubwordTokenizer

ENCODED_AT_ONCE = 1024
CACHED_TOKENS = 50_000_000


class Survey(NamedTuple):
    """What one pass over a split found."""

    pairs: int
    source_tokens: int
    target_tokens: int
    steps: int  # batches an epoch
    report: Report  # what was dropped, and where


def bucket_lengths(max_length: int) -> list[int]:
    """Return the lengths that sequences are padded to: 8, 10, 12, then about a fifth longer each, up to `max_length`."""
    lengths = [min(8, max_length)]
    while lengths[-1] < max_length:
        longer = max(lengths[-1] + 2, lengths[-1] * 6 // 5)
        lengths.append(min(longer + longer % 2, max_length))
    return lengths


class TokenBatches:
    """The pairs of one split as batches for `model.fit`, by length, with one shape a length bucket.

    A batch is ({"source": (B, L), "target": (B, L)}, labels (B, L)), int32: source tokens and end; start and target
    tokens; target tokens and end; zeros behind. B is batch_tokens / L. An epoch's last batch of a bucket is filled up with
    rows of padding, which the loss does not count, so that there are no more shapes than buckets.

    Args:
        data: where pairs come from, of `datasets.load`.
        split: which of its splits.
        source_tokenizer: of the source side.
        target_tokenizer: of the target side.
        batch_tokens: tokens a batch and side, padding included.
        max_length: pairs with a side of more tokens, start or end included, are dropped and counted.
        shuffle: whether to mix the pairs, anew in each epoch.
        seed: of the shuffling.

    Raises:
        ValueError: if a batch cannot hold one pair of `max_length` tokens.
    """

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
    ):
        if batch_tokens < max_length:
            raise ValueError(
                f"batch_tokens: expected at least max_length={max_length}, or the longest pairs fit no batch, got {batch_tokens}."
            )
        self.data = data
        self.split = split
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.batch_tokens = batch_tokens
        self.max_length = max_length
        self.shuffle = shuffle
        self.seed = seed
        self.lengths = bucket_lengths(max_length)
        self.batch_sizes = [batch_tokens // length for length in self.lengths]
        self._survey = None

    def pairs(self, report: Report | None = None) -> Iterator[tuple[list[int], list[int]]]:
        """Yield ids of each pair: source (S,) tokens and end; target (T+1,) start, tokens and end."""
        for sources, targets in self._chunks(report):
            yield from zip(sources, targets, strict=True)

    def _chunks(self, report=None) -> Iterator[tuple[list, list]]:
        """Yield the ids of about a thousand pairs at a time: a list of sources, a list of targets."""
        pairs = self.data.pairs(self.split, report)
        while chunk := list(itertools.islice(pairs, ENCODED_AT_ONCE)):
            sources = [[*source, END_ID] for source in self.source_tokenizer.encode([pair.source for pair in chunk])]
            targets = [[START_ID, *target, END_ID] for target in self.target_tokenizer.encode([pair.target for pair in chunk])]
            fits = [self._length(len(s), len(t)) <= self.max_length for s, t in zip(sources, targets, strict=True)]
            for pair in itertools.compress(chunk, map(operator.not_, fits)):
                if report is not None:
                    report.drop(f"over {self.max_length} tokens", pair.where)
            if any(fits):  # TensorFlow makes no ragged tensor of nothing
                yield list(itertools.compress(sources, fits)), list(itertools.compress(targets, fits))

    def survey(self) -> Survey:
        """Read the split once, to count pairs, tokens, batches and what is dropped.

        Raises:
            ValueError: if the data is broken, or nothing is left of it.
        """
        if self._survey is None:
            report, filled, sources, targets = Report(), Counter(), 0, 0
            for source, target in self.pairs(report):
                filled[self._bucket(self._length(len(source), len(target)))] += 1
                sources, targets = sources + len(source), targets + len(target) - 1
            steps = sum(-(-count // self.batch_sizes[bucket]) for bucket, count in filled.items())
            if not steps:
                why = "; ".join(report.lines()) or "it is empty"
                raise ValueError(f"data: expected pairs in {self.data.name}, split '{self.split}', got none: {why}.")
            self._survey = Survey(sum(filled.values()), sources, targets, steps, report)
        return self._survey

    def dataset(self):
        """Return the batches as a `tf.data.Dataset` of known cardinality."""
        import tensorflow as tf

        survey = self.survey()
        pairs = self._read()
        if survey.source_tokens + survey.target_tokens <= CACHED_TOKENS:
            pairs = pairs.cache()
        if self.shuffle:
            pairs = pairs.shuffle(min(survey.pairs, 100_000), seed=self.seed, reshuffle_each_iteration=True)
        batches = pairs.map(self._rows).bucket_by_sequence_length(
            lambda *rows: tf.reduce_max([tf.size(row) for row in rows]),
            bucket_boundaries=[length + 1 for length in self.lengths],
            bucket_batch_sizes=[*self.batch_sizes, 1],
            padding_values=PAD_ID,
            pad_to_bucket_boundary=True,
        )
        batches = batches.map(self._fill).apply(tf.data.experimental.assert_cardinality(survey.steps))
        return _without_autotuning(batches.prefetch(8))

    def _read(self):
        """Return each pair's ids as a dataset; they come from Python by the thousand: a crossing costs a tenth of a millisecond."""
        import tensorflow as tf

        def ragged():
            for sides in self._chunks():
                yield tuple(tf.ragged.constant(side, dtype=tf.int32, inner_shape=()) for side in sides)

        spec = tf.RaggedTensorSpec([None, None], tf.int32, row_splits_dtype=tf.int64)
        return tf.data.Dataset.from_generator(ragged, output_signature=(spec, spec)).unbatch()

    def _bucket(self, length):
        return next(i for i, longest in enumerate(self.lengths) if length <= longest)

    def _length(self, source: int, target: int) -> int:
        """Return the tokens of the longer side, of a source with its end and a target with its start and end."""
        return max(source, target - 1)

    def _rows(self, source, target):
        """Turn a pair's ids into the rows of a batch."""
        return source, target[:-1], target[1:]

    def _named(self, source, target, labels):
        """Name what the model reads."""
        return {"source": source, "target": target}, labels

    def _fill(self, *sides):
        """Append rows of padding up to the bucket's batch size, and name the sides."""
        import tensorflow as tf

        rows, length = tf.unstack(tf.shape(sides[0]))
        missing = self.batch_tokens // length - rows
        return self._named(*(tf.pad(side, [[0, missing], [0, 0]], constant_values=PAD_ID) for side in sides))


class JoinedBatches(TokenBatches):
    """The same for a model without an encoder: a pair is one sequence, its source a prompt and its target what follows.

    A batch is (ids (B, L), labels (B, L)), int32: start, source and target tokens; zeros under the source, target tokens and
    end. Loss and metrics do not count zeros, so the model is not asked to predict prompts.
    """

    def _length(self, source, target):
        return source + target - 2

    def _rows(self, source, target):
        import tensorflow as tf

        prompt = source[:-1]
        ids = tf.concat([[START_ID], prompt, target[1:-1]], axis=0)
        return ids, tf.concat([tf.fill(tf.shape(prompt), PAD_ID), target[1:]], axis=0)

    def _named(self, ids, labels):
        return ids, labels


def _without_autotuning(dataset):
    """Turn tf.data's autotuner off: the end of each epoch waits for its period, which grows up to a minute."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
