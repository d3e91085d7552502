"""The tokens that may follow each hypothesis, and their log-probabilities: the best ones, or one
drawn at random.
"""

from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.models.base import mean_log_probs

if TYPE_CHECKING:
    from tfk_transformer.generation.beam_search import Limits

# A log-probability that no hypothesis has; anything below half of it marks a missing hypothesis.
IMPOSSIBLE = -1e9
# Padding and start, the ids below, are never chosen: an undertrained model may find them likely.
LEAST_ID = END_ID
PRIME = 2**31 - 1  # the modulus of `_uniform`
# Makes a mask of -1e9 one of -60. Hidden tokens then have too small a share in a sum of
# exponentials to change it, and no exponential is a denormal number, with which processors take
# many times as long.
FAINT = 6e-8
TOP_K_BLOCK_SIZES = (64, 256)  # minimum and maximum length of the blocks in which `_top` searches


class VocabularyBlocks(NamedTuple):
    """The tokens that logits are of. The fields are tensors in graphs for any vocabulary."""

    size: Tensor  # int ()
    block: Tensor | None  # int (): the length of blocks that `_top` searches. None: no blocks

    @classmethod
    def of(cls, size: int) -> "VocabularyBlocks":
        """Return a vocabulary of this size, with blocks if a suitable length divides it."""
        return cls(
            size, next((block for block in range(*TOP_K_BLOCK_SIZES) if size % block == 0), None)
        )


class Choices(NamedTuple):
    """The tokens that may follow each hypothesis, k of them, best first."""

    log_probs: Tensor  # float32 (A, M, k)
    tokens: Tensor  # int32 (A, M, k)


def how_many(limits: "Limits", vocab_size: Tensor) -> Tensor:
    """Return k, the number of choices that a hypothesis needs, from `vocab_size` tokens."""
    # The best 2M of a sentence are among the best 2M of each hypothesis; END and the ids below it
    # may be excluded later.
    return tf.minimum(2 * limits.beam_size + LEAST_ID + 1, vocab_size)


def choose(
    logits: Tensor,
    ids: Tensor,
    limits: "Limits",
    too_short: Tensor,
    vocabulary: VocabularyBlocks,
    count: Tensor | None = None,
) -> Choices:
    """Return the tokens that may follow each hypothesis.

    Rules and sampling share one branch, so that a search without them pays for one branch only.

    Args:
        logits: (A, M, vocab_size); of an ensemble, a list of them, whose log-probabilities are
            averaged.
        ids: int32 (A, M, t+1), the hypotheses, the start token first.
        limits: search settings.
        too_short: bool (A, 1), whether hypotheses may not end yet.
        vocabulary: the tokens that the logits are of.
        count: int32 (), k. None: as many as a search over the whole vocabulary needs, see
            `how_many`.
    """
    if count is None:
        count = how_many(limits, vocabulary.size)
    return tf.cond(
        rules_ask(limits),
        lambda: _choose_by_rules(logits, ids, limits, too_short, vocabulary, count),
        lambda: choose_plainly(logits, limits, too_short, vocabulary, count),
    )


def rules_ask(limits: "Limits") -> Tensor:
    """Return whether a setting needs more than `choose_plainly`: bool ()."""
    rules = tf.not_equal(limits.repetition_penalty, 1.0) | tf.greater(
        limits.no_repeat_ngram_size, 0
    )
    return rules | tf.greater(limits.temperature, 0.0)


def choose_plainly(
    logits: Tensor,
    limits: "Limits",
    too_short: Tensor,
    vocabulary: VocabularyBlocks,
    count: Tensor,
    hidden: Tensor | None = None,
) -> Choices:
    """Return the same as `choose`, for settings without rules and sampling.

    Args:
        logits: see `choose`; with a shortlist, those of the candidates (A, M, n), and the result
            has places among these for `tokens`.
        limits: see `choose`.
        too_short: see `choose`.
        vocabulary: see `choose`; with a shortlist, the candidates.
        count: see `choose`.
        hidden: with a shortlist, float32 (A, 1, n), see `Candidates`.
    """
    if hidden is None:
        log_probs = mean_log_probs(logits)
    else:
        faint = tf.nest.map_structure(
            lambda part: tf.cast(part, tf.float32) + hidden * FAINT, logits
        )
        log_probs = mean_log_probs(faint) + hidden
    return _best(log_probs, _least_allowed(too_short), limits, vocabulary, count)


def _choose_by_rules(
    logits: Tensor,
    ids: Tensor,
    limits: "Limits",
    too_short: Tensor,
    vocabulary: VocabularyBlocks,
    count: Tensor,
) -> Choices:
    least_id = _least_allowed(too_short)
    present = _marked(ids, limits.beam_size, vocabulary.size)
    factor = limits.repetition_penalty
    penalised = tf.nest.map_structure(
        lambda part: _penalise_repetition(part, present, factor),
        logits,
    )
    log_probs = mean_log_probs(penalised)
    allowed = _forbid_repeated_ngrams(log_probs, ids, limits, vocabulary.size)
    position = tf.shape(ids)[2] - 1
    return tf.cond(
        tf.greater(limits.temperature, 0.0),
        lambda: _drawn(log_probs, allowed, least_id, count, position, limits, vocabulary.size),
        lambda: _best(allowed, least_id, limits, vocabulary, count),
    )


def _least_allowed(too_short: Tensor) -> Tensor:
    """Return the lowest id that may be chosen, (A, 1, 1): those below are impossible."""
    return tf.where(too_short, END_ID + 1, LEAST_ID)[:, :, None]


def _best(
    log_probs: Tensor,
    least_id: Tensor,
    limits: "Limits",
    vocabulary: VocabularyBlocks,
    count: Tensor,
) -> Choices:
    """Return the best tokens, with their log-probabilities."""
    # Not the shape of the logits, which would be read at every step.
    shape = [-1, limits.beam_size, count]
    best, tokens = (tf.reshape(part, shape) for part in _top(log_probs, vocabulary, count))
    return Choices(tf.where(tokens < least_id, IMPOSSIBLE, best), tokens)


def _top(values: Tensor, vocabulary: VocabularyBlocks, count: Tensor) -> Tensor:
    """Return the `count` greatest of values (…, vocab_size), and their tokens: (N, count) each.

    The greatest values are in the blocks with the greatest maxima. To search only these is three
    times as fast.
    """
    width, size = vocabulary
    if size is None:
        return tf.math.top_k(tf.reshape(values, [-1, width]), k=count)
    blocks, searched = (
        tf.reshape(values, [-1, width // size, size]),
        tf.minimum(count, width // size),
    )
    chosen = tf.math.top_k(tf.reduce_max(blocks, axis=-1), k=searched).indices  # (N, c)
    among = tf.reshape(tf.gather(blocks, chosen, batch_dims=1), [-1, searched * size])
    best, places = tf.math.top_k(among, k=count)
    nth = places // size  # of the chosen blocks
    return best, places + (tf.gather(chosen, nth, batch_dims=1) - nth) * size


def _drawn(
    log_probs: Tensor,
    allowed: Tensor,
    least_id: Tensor,
    count: Tensor,
    position: Tensor,
    limits: "Limits",
    vocab_size: Tensor,
) -> Choices:
    """Draw one token for each hypothesis; the other choices are impossible.

    The largest of log-probabilities / temperature plus Gumbel noise is a draw from their softmax.
    """
    possible = tf.range(vocab_size) >= least_id
    tempered = tf.where(possible, allowed, IMPOSSIBLE) / limits.temperature
    kept = tempered >= _least_kept(tempered, limits.top_k, limits.top_p, vocab_size)
    uniform = _uniform(limits.seed, position, tf.shape(allowed)[1], vocab_size)
    noise = -tf.math.log(-tf.math.log(uniform))  # (M, vocab_size)
    # (A, M, 1)
    token = tf.argmax(tf.where(kept, tempered + noise, IMPOSSIBLE), axis=-1, output_type=tf.int32)[
        :, :, None
    ]
    log_prob = tf.gather(log_probs, token, batch_dims=2)
    rest = [[0, 0], [0, 0], [0, count - 1]]
    return Choices(tf.pad(log_prob, rest, constant_values=IMPOSSIBLE), tf.pad(token, rest))


def _least_kept(scores: Tensor, top_k: Tensor, top_p: Tensor, vocab_size: Tensor) -> Tensor:
    """Return the smallest score (A, M, 1) among the best `top_k` tokens and among the fewest whose
    probabilities reach `top_p`.
    """
    descending = tf.math.top_k(scores, k=vocab_size).values
    before = tf.cumsum(tf.nn.softmax(descending), axis=-1, exclusive=True)
    among = tf.range(vocab_size) < tf.where(tf.greater(top_k, 0), top_k, vocab_size)
    return tf.reduce_min(
        tf.where(
            among & (before < top_p), descending, tf.reduce_max(descending, axis=-1, keepdims=True)
        ),
        axis=-1,
        keepdims=True,
    )


def _uniform(seed: Tensor, position: Tensor, hypotheses: Tensor, vocab_size: Tensor) -> Tensor:
    """Return pseudo-random float32 (M, vocab_size) in (0, 1) that depend only on the seed, the
    position and their indices.

    Runtimes' own generators differ: exported files have the seed as an input and must draw the same
    tokens as Keras. These are quadratic maps modulo a prime, in 64-bit integers that cannot
    overflow.
    """
    start = tf.cast(seed, tf.int64) * 7_919 + tf.cast(position, tf.int64) * 104_729
    place = tf.range(hypotheses)[:, None] * vocab_size + tf.range(vocab_size)[None, :]
    x = tf.math.floormod(start, PRIME) + tf.cast(place, tf.int64)
    for factor, addend in (
        (1_103_515_245, 12_345),
        (1_664_525, 1_013_904_223),
        (69_621, 224_737),
        (48_271, 974_711),
    ):
        x = tf.math.floormod(x, PRIME)
        x = tf.math.floormod(x * x, PRIME) + tf.math.floormod(x * factor, PRIME) + addend
    return (tf.cast(tf.math.floormod(x, 2**24), tf.float32) + 0.5) / 2**24


def _penalise_repetition(logits: Tensor, present: Tensor, factor: Tensor) -> Tensor:
    """Lower the logits (A, M, V) of tokens that are present in a hypothesis, bool (A, M, V).

    Positive ones are divided by the factor, others multiplied (arXiv:1909.05858, section 4.1).
    """
    logits, factor = tf.cast(logits, tf.float32), tf.cast(factor, tf.float32)
    return tf.where(present, tf.where(logits > 0, logits / factor, logits * factor), logits)


def _forbid_repeated_ngrams(
    log_probs: Tensor,
    ids: Tensor,
    limits: "Limits",
    vocab_size: Tensor,
) -> Tensor:
    """Exclude the tokens that would complete an n-gram which a hypothesis already has; a size of 0
    excludes none.
    """
    size = limits.no_repeat_ngram_size
    length, known = tf.shape(ids)[2], tf.maximum(size - 1, 0)
    # With padding before the first token there are as many n-grams as tokens. It matches nothing:
    # the latest n-gram has less of it.
    longer = tf.pad(ids, [[0, 0], [0, 0], [known, 0]], constant_values=PAD_ID)
    places = tf.range(length)[:, None] + tf.range(known)[None, :]  # (n-grams, size - 1)
    different = tf.cast(
        tf.not_equal(tf.gather(longer, places, axis=2), longer[:, :, None, length:]), tf.int32
    )
    # (A, M, n-grams, size): onnxruntime does not sum over nothing.
    different = tf.pad(different, [[0, 0], [0, 0], [0, 0], [0, 1]])
    same = tf.equal(tf.reduce_sum(different, axis=-1), 0)  # (A, M, n-grams)
    completing = tf.where(same & tf.greater(size, 0), ids, vocab_size)
    return tf.where(_marked(completing, limits.beam_size, vocab_size), IMPOSSIBLE, log_probs)


def _marked(tokens: Tensor, beams: Tensor, vocab_size: Tensor) -> Tensor:
    """Return which tokens of the vocabulary are among tokens (A, M, n): bool (A, M, vocab_size).

    M is `beams`. The id vocab_size marks none.
    """
    rows = tf.shape(tokens)[0] * beams
    flat = tf.reshape(tokens, [rows, -1])  # (A*M, n)
    # (A*M, n, 2)
    places = tf.stack([tf.broadcast_to(tf.range(rows)[:, None], tf.shape(flat)), flat], axis=-1)
    ones = tf.ones(tf.shape(flat), tf.float32)
    marks = tf.tensor_scatter_nd_update(tf.zeros([rows, vocab_size + 1]), places, ones)
    return tf.reshape(marks[:, :vocab_size] > 0, [-1, beams, vocab_size])
