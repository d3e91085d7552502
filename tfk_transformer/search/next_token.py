"""The next tokens of each hypothesis and their log-probabilities: the top k, or a sample.

A sentences have M hypotheses each, and the vocabulary has V tokens. The logits of an ensemble are a
list, whose log-probabilities are averaged.
"""

from typing import NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.models.token_model import mean_log_probs
from tfk_transformer.search.search_state import Limits
from tfk_transformer.search.vocabulary import VocabularyBlocks, best_by_blocks, top_k_by_blocks

# The log-probability of an excluded token. Below half of it, a hypothesis is missing.
NEG_INF = -1e9
# The lower ids, padding and start, are always excluded: an undertrained model may predict them.
MIN_ID = END_ID
NUM_EXCLUDED = END_ID + 1  # END may be excluded, too
PRIME = 2**31 - 1  # the modulus of `_uniform`
# Scales a mask of -1e9 to -60. A hidden token's exponential is then too small to change a sum,
# but it is not a denormal number. Processors are many times slower with denormal numbers.
MASK_SCALE = 6e-8


class NextTokens(NamedTuple):
    """The k tokens that may follow each hypothesis, best first."""

    log_probs: Tensor  # float32 (A, M, k)
    ids: Tensor  # int32 (A, M, k)


def num_next_tokens(limits: Limits, vocab_size: Tensor) -> Tensor:
    """Return k, the number of next tokens that each hypothesis needs, at most `vocab_size`."""
    # The best 2M of a sentence are among the best 2M of each hypothesis.
    return tf.minimum(2 * limits.beam_size + NUM_EXCLUDED, vocab_size)


def uses_logits_processors(limits: Limits) -> Tensor:
    """Return whether a setting requires logits processors or sampling: bool ()."""
    return (
        tf.not_equal(limits.repetition_penalty, 1.0)
        | tf.greater(limits.no_repeat_ngram_size, 0)
        | tf.greater(limits.temperature, 0.0)
    )


def best_token(
    logits: Tensor, vocabulary: VocabularyBlocks, candidate_mask: Tensor | None
) -> NextTokens:
    """Return the most probable next token of each sentence's only hypothesis: (A, 1) each.

    The arguments are those of `TokenChoice.top_k`, with M = 1.
    """
    excluded = tf.where(tf.range(vocabulary.size) < MIN_ID, NEG_INF, 0.0)
    if candidate_mask is not None:
        excluded += candidate_mask
    log_probs = mean_log_probs(_masked(logits, candidate_mask)) + excluded
    return NextTokens(*best_by_blocks(log_probs, vocabulary))


class TokenChoice:
    """Chooses the tokens that may follow each hypothesis of a step.

    The logits are of the `vocabulary`. Hypotheses `below_min_length`, bool (A, 1, 1), are too short
    to end, and k is `num_next_tokens`.
    """

    def __init__(
        self, limits: Limits, vocabulary: VocabularyBlocks, below_min_length: Tensor, k: Tensor
    ) -> None:
        self.limits = limits
        self.vocabulary = vocabulary
        self.k = k
        # int32 (A, 1, 1), the lowest id that is not excluded.
        self.min_id = tf.where(below_min_length, END_ID + 1, MIN_ID)

    def choose(self, logits: Tensor, ids: Tensor) -> NextTokens:
        """Choose with all settings, from logits (A, M, V) of hypotheses int32 (A, M, t+1).

        Logits processors and sampling share one branch, so a search without them runs only one
        branch.
        """
        return tf.cond(
            uses_logits_processors(self.limits),
            lambda: self._processed(logits, ids),
            lambda: self._best(mean_log_probs(self._renormalized(logits, self._hidden()))),
        )

    def top_k(self, logits: Tensor, candidate_mask: Tensor | None) -> NextTokens:
        """Choose without logits processors, sampling and renormalization.

        With a shortlist, the logits (A, M, n) are of the candidates, and the mask is
        `Candidates.mask`, float32 (A, 1, n).
        """
        log_probs = mean_log_probs(_masked(logits, candidate_mask))
        return self._best(log_probs if candidate_mask is None else log_probs + candidate_mask)

    def _processed(self, logits: Tensor, ids: Tensor) -> NextTokens:
        limits, vocab_size = self.limits, self.vocabulary.size
        present = _token_mask(ids, limits.beam_size, vocab_size)
        penalized = tf.nest.map_structure(
            lambda part: _penalize_repetition(part, present, limits.repetition_penalty), logits
        )
        repeated = _repeated_ngrams(ids, limits, vocab_size)
        hidden = tf.where(repeated, NEG_INF, self._hidden())
        log_probs = mean_log_probs(self._renormalized(penalized, hidden))
        allowed = tf.where(repeated, NEG_INF, log_probs)
        position = tf.shape(ids)[2] - 1
        return tf.cond(
            tf.greater(limits.temperature, 0.0),
            lambda: self._sample(log_probs, allowed, position),
            lambda: self._best(allowed),
        )

    def _hidden(self) -> Tensor:
        """Return a mask for logits, float32 (A, 1, V), which hides the lowest ids."""
        lowest = tf.where(tf.range(END_ID + 1) < self.min_id, NEG_INF, 0.0)
        return tf.pad(lowest, [[0, 0], [0, 0], [0, self.vocabulary.size - END_ID - 1]])

    def _renormalized(self, logits: Tensor, hidden: Tensor) -> Tensor:
        """Hide tokens in logits (A, M, V), and so in their softmax, with `renormalize_logits`."""
        hidden = tf.where(tf.equal(self.limits.renormalize_logits, 1), hidden, 0.0)
        return tf.nest.map_structure(lambda part: tf.cast(part, tf.float32) + hidden, logits)

    def _best(self, log_probs: Tensor) -> NextTokens:
        """Return the k tokens with the greatest log-probabilities (A, M, V)."""
        # All excluded tokens are in the first block.
        num_blocks = tf.maximum(self.k - NUM_EXCLUDED, 1) + 1
        best, ids = top_k_by_blocks(
            log_probs, self.vocabulary, self.limits.beam_size, self.k, num_blocks
        )
        return NextTokens(tf.where(ids < self.min_id, NEG_INF, best), ids)

    def _sample(self, log_probs: Tensor, allowed: Tensor, position: Tensor) -> NextTokens:
        """Sample one token for each hypothesis. The other k - 1 have the log-probability `NEG_INF`.

        The largest of log-probabilities / temperature plus Gumbel noise is a sample from their
        softmax.
        """
        limits, vocab_size = self.limits, self.vocabulary.size
        possible = tf.range(vocab_size) >= self.min_id
        scaled = tf.where(possible, allowed, NEG_INF) / limits.temperature
        eligible = scaled >= _sampling_threshold(scaled, limits, vocab_size)
        uniform = _uniform(limits.seed, position, tf.shape(allowed)[1], vocab_size)
        noise = -tf.math.log(-tf.math.log(uniform))  # (M, V)
        noisy = tf.where(eligible, scaled + noise, NEG_INF)
        token = tf.argmax(noisy, axis=-1, output_type=tf.int32)[:, :, None]  # (A, M, 1)
        log_prob = tf.gather(log_probs, token, batch_dims=2)
        rest = [[0, 0], [0, 0], [0, self.k - 1]]
        return NextTokens(tf.pad(log_prob, rest, constant_values=NEG_INF), tf.pad(token, rest))


def _masked(logits: Tensor, candidate_mask: Tensor | None) -> Tensor:
    """Hide the candidates of other sentences in the softmax of logits; see `TokenChoice.top_k`."""
    if candidate_mask is None:
        return logits
    return tf.nest.map_structure(
        lambda part: tf.cast(part, tf.float32) + candidate_mask * MASK_SCALE, logits
    )


def _sampling_threshold(scores: Tensor, limits: Limits, vocab_size: Tensor) -> Tensor:
    """Return the lowest score (A, M, 1) of the best `top_k` tokens that `top_p` includes."""
    descending = tf.math.top_k(scores, k=vocab_size).values
    cumulative = tf.cumsum(tf.nn.softmax(descending), axis=-1, exclusive=True)
    top_k = tf.where(tf.greater(limits.top_k, 0), limits.top_k, vocab_size)
    eligible = (tf.range(vocab_size) < top_k) & (cumulative < limits.top_p)
    highest = tf.reduce_max(descending, axis=-1, keepdims=True)
    return tf.reduce_min(tf.where(eligible, descending, highest), axis=-1, keepdims=True)


def _uniform(seed: Tensor, position: Tensor, beams: Tensor, vocab_size: Tensor) -> Tensor:
    """Return pseudo-random float32 (M, V) in (0, 1), from the seed, the position and their indices.

    The random generators of the runtimes differ, but exported files take the seed as an input and
    must sample the same tokens as Keras. These are quadratic maps modulo a prime, in 64-bit
    integers that cannot overflow.
    """
    start = tf.cast(seed, tf.int64) * 7_919 + tf.cast(position, tf.int64) * 104_729
    index = tf.range(beams)[:, None] * vocab_size + tf.range(vocab_size)[None, :]
    x = tf.math.floormod(start, PRIME) + tf.cast(index, tf.int64)
    for factor, addend in (
        (1_103_515_245, 12_345),
        (1_664_525, 1_013_904_223),
        (69_621, 224_737),
        (48_271, 974_711),
    ):
        x = tf.math.floormod(x, PRIME)
        x = tf.math.floormod(x * x, PRIME) + tf.math.floormod(x * factor, PRIME) + addend
    return (tf.cast(tf.math.floormod(x, 2**24), tf.float32) + 0.5) / 2**24


def _penalize_repetition(logits: Tensor, present: Tensor, factor: Tensor) -> Tensor:
    """Lower the logits of tokens that are `present`, (A, M, V) each (arXiv:1909.05858, 4.1)."""
    logits = tf.cast(logits, tf.float32)
    factor = tf.cast(factor, tf.float32)
    return tf.where(present, tf.where(logits > 0, logits / factor, logits * factor), logits)


def _repeated_ngrams(ids: Tensor, limits: Limits, vocab_size: Tensor) -> Tensor:
    """Return which tokens would repeat an n-gram, bool (A, M, V); none for a size of 0."""
    size = limits.no_repeat_ngram_size
    length = tf.shape(ids)[2]
    context_size = tf.maximum(size - 1, 0)
    # With padding before the first token, there is one n-gram for each token. The padding matches
    # nothing: the latest n-gram contains less of it.
    padded = tf.pad(ids, [[0, 0], [0, 0], [context_size, 0]], constant_values=PAD_ID)
    # (n-grams, size - 1)
    indices = tf.range(length)[:, None] + tf.range(context_size)[None, :]
    different = tf.not_equal(tf.gather(padded, indices, axis=2), padded[:, :, None, length:])
    # (A, M, n-grams, size): onnxruntime cannot sum over an empty axis.
    different = tf.pad(tf.cast(different, tf.int32), [[0, 0], [0, 0], [0, 0], [0, 1]])
    same = tf.equal(tf.reduce_sum(different, axis=-1), 0)  # (A, M, n-grams)
    banned = tf.where(same & tf.greater(size, 0), ids, vocab_size)
    return _token_mask(banned, limits.beam_size, vocab_size)


def _token_mask(ids: Tensor, beams: Tensor, vocab_size: Tensor) -> Tensor:
    """Return which tokens are in ids (A, M, n), bool (A, M, V); the id vocab_size is no token."""
    num_rows = tf.shape(ids)[0] * beams
    flat = tf.reshape(ids, [num_rows, -1])  # (A*M, n)
    rows = tf.broadcast_to(tf.range(num_rows)[:, None], tf.shape(flat))
    mask = tf.tensor_scatter_nd_update(
        tf.zeros([num_rows, vocab_size + 1]),
        tf.stack([rows, flat], axis=-1),  # (A*M, n, 2)
        tf.ones(tf.shape(flat), tf.float32),
    )
    return tf.reshape(mask[:, :vocab_size] > 0, [-1, beams, vocab_size])
