"""A fitted model as TensorFlow graph functions: what the Keras translator runs and what is exported."""

from typing import Any, NamedTuple

import tensorflow as tf

from tfk_transformer.choices import IMPOSSIBLE
from tfk_transformer.config import END_ID, PAD_ID, START_ID
from tfk_transformer.losses import real_tokens, token_crossentropy
from tfk_transformer.model import TokenModel
from tfk_transformer.search import Hypotheses, Limits, Source, beam_search
from tfk_transformer.tokenizers import SubwordTokenizer


class Translations(NamedTuple):
    """Texts and their scores, best first."""

    texts: Any  # string (B, n_best)
    scores: Any  # float32 (B, n_best)


class TranslationGraph:
    """Search and scoring over ids, and over strings with the tokenizers inside.

    A blank source has the empty translation with score 0. A source of more than `max_length` tokens, or with ids that the
    vocabulary does not have, is neither cut nor let down its neighbours in the batch: it has the empty translation with
    score NaN. A `beam_size` or `n_best` below 1 counts as 1, and hypotheses beyond `beam_size` are blank and score -1e9.

    Args:
        model: a built model; its weights are read at run time.
        source_tokenizer: of the texts to translate.
        target_tokenizer: of the translations.
    """

    def __init__(self, model: TokenModel, source_tokenizer: SubwordTokenizer, target_tokenizer: SubwordTokenizer):
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer

    def generate(self, source, limits: Limits, use_cache=True) -> Hypotheses:
        """Translate ids.

        Args:
            source: int32 (B, S), tokens and end token, padded.
            limits: search settings, as tensors or numbers.
            use_cache: whether a step computes the last position alone, or the whole prefix anew.

        Returns:
            int32 ids (B, n_best, T) and float32 scores (B, n_best).
        """
        lengths, fits, ids = self._readable(source)
        possible = _possible(limits)
        found = _filled(self._search(ids, lengths, possible, use_cache), tf.maximum(limits.n_best, 1))
        translated = fits & (lengths > 1)[:, None]
        unsaid = tf.where(fits, 0.0, float("nan"))  # (B, 1)
        return Hypotheses(tf.where(translated[:, :, None], found.ids, PAD_ID), tf.where(translated, found.scores, unsaid))

    def translate(self, texts, limits: Limits, use_cache=True) -> Translations:
        """Translate string texts (B,) to string texts (B, n_best) with float32 scores (B, n_best)."""
        found = self.generate(self.source_tokenizer.graph_encode(vector(texts)), limits, use_cache)
        shape = tf.shape(found.scores)
        rows = tf.reshape(found.ids, [tf.size(found.scores), tf.shape(found.ids)[2]])  # (B*n_best, T)
        return Translations(tf.reshape(self.target_tokenizer.graph_decode(rows), shape), found.scores)

    def score(self, source_texts, target_texts):
        """Return the log-probability (B,) of each target text (B,) given its source text (B,), by one full masked pass."""
        source = self.source_tokenizer.graph_encode(vector(source_texts))
        return self.score_ids(source, self.target_tokenizer.graph_encode(vector(target_texts)))

    def score_ids(self, source, labels):
        """Return the log-probability (B,) of target ids (B, T), tokens and end token, given source ids (B, S).

        It is NaN where a side is longer than `max_length` or has ids that its vocabulary does not have.
        """
        _, source_fits, source = self._readable(source)
        _, labels_fit, labels = self._readable(labels, self.model.config.target_vocab_size)
        log_probs, fit_together = self._log_probs(source, labels)
        return tf.where((source_fits & labels_fit)[:, 0] & fit_together, log_probs, float("nan"))

    def _log_probs(self, source, labels):
        """Return the log-probability (B,) of the labels, and whether source and labels fit the model together."""
        target = tf.concat([_starts(labels), labels[:, :-1]], axis=1)
        return self._sum_log_probs({"source": source, "target": target}, labels), True

    def _sum_log_probs(self, inputs, labels):
        logits = self.model.logits(self.model.decode(inputs, training=False).output)
        return -tf.reduce_sum(token_crossentropy(labels, logits) * real_tokens(labels), axis=1)

    def _readable(self, ids, vocab_size: int | None = None):
        """Return the lengths (B,) of ids (B, S), whether the model can read them (B, 1), and the ids without rows that it cannot."""
        config = self.model.config
        return readable(ids, vocab_size or config.source_vocab_size, config.max_length)

    def _search(self, source, lengths, limits: Limits, use_cache) -> Hypotheses:
        longest = tf.minimum(limits.longest(lengths), self.model.config.max_length)
        return self._run(source, longest, limits, use_cache)

    def _run(self, source, longest, limits: Limits, use_cache, prefix=None) -> Hypotheses:
        step, first_cache, memory = self.model.start_search(source, use_cache)
        cache = first_cache(tf.size(longest) * limits.beam_size)
        real = tf.zeros([tf.size(longest), 0], tf.bool) if prefix is not None else tf.not_equal(source, PAD_ID)
        return beam_search(step, cache, Source(memory, real), longest, limits, prefix)


class ContinuationGraph(TranslationGraph):
    """The same over a model without an encoder: the source is a prompt, and its translation what the model continues it with.

    A prompt and its continuation together have at most the model's `max_length` tokens.
    """

    def _search(self, source, lengths, limits: Limits, use_cache) -> Hypotheses:
        prompts = _without_end(source)
        given = tf.math.count_nonzero(prompts, axis=1, dtype=tf.int32)
        longest = tf.minimum(limits.longest(lengths) + given, self.model.config.max_length)
        found = self._run(source, longest, limits, use_cache, prompts)
        return found._replace(ids=_shift_left(found.ids, given))

    def _log_probs(self, source, labels):
        prompts, labels, longest = _ragged(_without_end(source)), _ragged(labels), self.model.config.max_length
        ids = tf.concat([_ragged(_starts(source)), prompts, labels], axis=1).to_tensor(PAD_ID)
        scored = tf.concat([prompts.with_flat_values(tf.zeros_like(prompts.flat_values)), labels], axis=1)
        log_probs = self._sum_log_probs(ids[:, :-1][:, :longest], scored.to_tensor(PAD_ID)[:, :longest])
        return log_probs, scored.row_lengths() <= longest


def readable(ids, vocab_size: int, max_length: int):
    """Find the rows of int32 ids (B, S) that a model can read: no longer than it is, with ids of its vocabulary alone.

    Returns:
        int32 lengths (B,); bool (B, 1), which rows can be read; and the ids, int32 (B, 1 to max_length), all padding where
        they cannot.
    """
    ids = tf.pad(ids, [[0, 0], [0, tf.cast(tf.equal(tf.shape(ids)[1], 0), tf.int32)]])  # onnxruntime fails on rows of nothing
    lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
    known = tf.reduce_all((ids >= 0) & (ids < vocab_size), axis=1)
    fits = (known & (lengths <= max_length))[:, None]
    return lengths, fits, tf.where(fits, ids, PAD_ID)[:, :max_length]


def vector(texts):
    """Refuse what is not one list of texts: TensorFlow checks no ranks where a SavedModel is called."""
    return tf.ensure_shape(texts, [None])


def _possible(limits: Limits) -> Limits:
    """Return limits that a search can keep: from 1 to `beam_size` hypotheses."""
    beam_size = tf.maximum(limits.beam_size, 1)
    return limits._replace(beam_size=beam_size, n_best=tf.minimum(tf.maximum(limits.n_best, 1), beam_size))


def _filled(found: Hypotheses, n_best) -> Hypotheses:
    """Add blank hypotheses up to n_best."""
    missing = [0, n_best - tf.shape(found.scores)[1]]
    ids = tf.pad(found.ids, [[0, 0], missing, [0, 0]], constant_values=PAD_ID)
    return Hypotheses(ids, tf.pad(found.scores, [[0, 0], missing], constant_values=IMPOSSIBLE))


def _starts(rows):
    return tf.fill([tf.shape(rows)[0], 1], START_ID)


def _without_end(ids):
    return tf.where(tf.equal(ids, END_ID), PAD_ID, ids)


def _ragged(ids):
    return tf.RaggedTensor.from_tensor(ids, padding=PAD_ID)


def _shift_left(ids, places):
    """Drop the first `places` (B,) tokens of every row of ids (B, n, T); padding comes in from the right."""
    length = tf.shape(ids)[2]
    wanted = tf.range(length)[None, :] + places[:, None]  # (B, T)
    by_time = tf.gather(tf.transpose(ids, [0, 2, 1]), tf.minimum(wanted, length - 1), batch_dims=1)  # (B, T, n)
    return tf.transpose(tf.where((wanted < length)[:, :, None], by_time, PAD_ID), [0, 2, 1])
