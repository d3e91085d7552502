"""A fitted model as TensorFlow graph functions: what the Keras translator runs and what is exported."""

from typing import Any, NamedTuple

import tensorflow as tf

from tfk_transformer.config import PAD_ID, START_ID
from tfk_transformer.losses import real_tokens, token_crossentropy
from tfk_transformer.search import Hypotheses, Limits, beam_search
from tfk_transformer.tokenizers import SubwordTokenizer
from tfk_transformer.transformer import Transformer


class Translations(NamedTuple):
    """Texts and their scores, best first."""

    texts: Any  # string (B, n_best)
    scores: Any  # float32 (B, n_best)


class TranslationGraph:
    """Search and scoring over ids, and over strings with the tokenizers inside.

    A blank source has the empty translation with score 0. A source of more than `max_length` tokens is neither cut nor
    let down its neighbours in the batch: it has the empty translation with score NaN.

    Args:
        model: a built model; its weights are read at run time.
        source_tokenizer: of the texts to translate.
        target_tokenizer: of the translations.
    """

    def __init__(self, model: Transformer, source_tokenizer: SubwordTokenizer, target_tokenizer: SubwordTokenizer):
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer

    def generate(self, source, limits: Limits) -> Hypotheses:
        """Translate ids.

        Args:
            source: int32 (B, S), tokens and end token, padded.
            limits: search settings, as tensors or numbers.

        Returns:
            int32 ids (B, n_best, T) and float32 scores (B, n_best).
        """
        lengths, fits, readable = self._readable(source)
        longest = tf.minimum(limits.longest(lengths), self.model.config.max_length)
        found = self._search(readable, longest, limits)
        translated = fits & (lengths > 1)[:, None]
        unsaid = tf.where(fits, 0.0, float("nan"))  # (B, 1)
        return Hypotheses(tf.where(translated[:, :, None], found.ids, PAD_ID), tf.where(translated, found.scores, unsaid))

    def translate(self, texts, limits: Limits) -> Translations:
        """Translate string texts (B,) to string texts (B, n_best) with float32 scores (B, n_best)."""
        found = self.generate(self.source_tokenizer.graph_encode(texts), limits)
        shape = tf.shape(found.scores)
        rows = tf.reshape(found.ids, [-1, tf.shape(found.ids)[2]])  # (B*n_best, T)
        return Translations(tf.reshape(self.target_tokenizer.graph_decode(rows), shape), found.scores)

    def score(self, source_texts, target_texts):
        """Return the log-probability (B,) of each target text (B,) given its source text (B,), by one full masked pass."""
        return self.score_ids(self.source_tokenizer.graph_encode(source_texts), self.target_tokenizer.graph_encode(target_texts))

    def score_ids(self, source, labels):
        """Return the log-probability (B,) of target ids (B, T), tokens and end token, given source ids (B, S).

        It is NaN where a side is longer than `max_length`.
        """
        _, source_fits, source = self._readable(source)
        _, labels_fit, labels = self._readable(labels)
        start = tf.fill([tf.shape(labels)[0], 1], START_ID)
        target = tf.concat([start, labels[:, :-1]], axis=1)
        logits = self.model.logits(self.model.decode({"source": source, "target": target}, training=False).output)
        log_probs = -tf.reduce_sum(token_crossentropy(labels, logits) * real_tokens(labels), axis=1)
        return tf.where((source_fits & labels_fit)[:, 0], log_probs, float("nan"))

    def _readable(self, ids):
        """Return the lengths (B,) of ids (B, S), whether they fit the model (B, 1), and the ids without rows that do not."""
        max_length = self.model.config.max_length
        lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
        fits = (lengths <= max_length)[:, None]
        return lengths, fits, tf.where(fits, ids, PAD_ID)[:, :max_length]

    def _search(self, source, longest, limits: Limits) -> Hypotheses:
        memory = self.model.remember(source)

        def step(tokens, position, cache):
            return self.model.step(tokens, position, cache, memory)

        cache = self.model.decoder.empty_cache(tf.size(longest) * limits.beam_size)
        return beam_search(step, cache, longest, limits.beam_size, limits.n_best, limits.length_penalty)
