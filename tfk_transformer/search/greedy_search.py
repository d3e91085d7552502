"""Greedy search with the usual settings, in steps of few operators.

Every operator takes a considerable share of the time of such a short step. The results are those of
`beam_search` with one beam.
"""

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.models.token_model import Beams, StepFunction
from tfk_transformer.search.next_token import best_token
from tfk_transformer.search.search_state import SearchRows, SearchState
from tfk_transformer.search.selection import Selection

BEYOND_LENGTHS = 2**16  # more than the positions of a cache


def search_greedily(
    step: StepFunction, selection: Selection, state: SearchState, rows: SearchRows, num_done: Tensor
) -> SearchState:
    """Extend the only hypothesis of each sentence until `num_done` int32 () sentences are done.

    Returns the state after the last step, without a new lineage and coverage. A number of 0 changes
    nothing, and allows more beams. No sentence may be done in the first state.
    """

    def advance(
        length: Tensor, tokens: Tensor, last: Tensor, log_probs: Tensor, done: Tensor, cache: Tensor
    ) -> tuple[Tensor, ...]:
        ids = tf.concat([state.ids[:, :1], tokens[:, None]], axis=2)
        prediction = step(Beams(ids, last, length, None), cache, rows.memory)
        log_prob, token = selection.from_logits(
            rows, lambda vocabulary, mask: best_token(prediction.logits, vocabulary, mask)
        )
        length += 1
        token = tf.where(done, PAD_ID, token)
        return (
            length,
            tf.concat([tokens, token], axis=1),
            token,
            tf.where(done, log_probs, log_probs + log_prob),
            done | tf.equal(token, END_ID) | (length >= rows.max_length),
            prediction.cache,
        )

    first_tokens = tf.zeros([tf.size(rows.batch_index), 0], tf.int32)
    last = state.ids[:, :1, -1]
    first = (state.length, first_tokens, last, state.log_probs, state.done, state.cache)
    any_width = tf.TensorShape([None, None])
    length, tokens, _, log_probs, done, cache = tf.while_loop(
        lambda length, tokens, last, log_probs, done, cache: count_done(done) < num_done,
        advance,
        first,
        shape_invariants=(
            tf.TensorShape([]),
            any_width,
            any_width,
            any_width,
            any_width,
            cache_shapes(state.cache),
        ),
    )
    # OpenVINO takes for granted that a loop makes a step, so that there is a token and a position.
    # These slices, which keep everything, hide it.
    tokens = tokens[:, : length - state.length]
    beyond = (length + 1) * BEYOND_LENGTHS
    cache = tf.nest.map_structure(lambda tensor: tensor[:, :, :beyond], cache)
    copies = [1, tf.shape(state.ids)[1], 1]  # finished and live hypotheses
    ids = tf.concat([state.ids, tf.tile(tokens[:, None], copies)], axis=2)
    # Without the start token. Steps after the end of a sentence add padding.
    lengths = tf.math.count_nonzero(ids[:, 0, 1:], axis=1, keepdims=True, dtype=tf.int32)
    scores = log_probs / selection.penalty(lengths)
    return state._replace(
        length=length,
        ids=ids,
        log_probs=log_probs,
        cache=cache,
        finished_scores=tf.where(done, scores, state.finished_scores),
        done=done,
    )


def count_done(done: Tensor) -> Tensor:
    """Return the number of sentences that are done, int32 (), from bool (A, 1)."""
    # tf2onnx converts `count_nonzero` to more operators.
    return tf.reduce_sum(tf.cast(done, tf.int32))


def cache_shapes(cache: Tensor) -> Tensor:
    """Return the shape invariants of a cache, which grows in a loop."""
    return tf.nest.map_structure(
        lambda tensor: tf.TensorShape([None, tensor.shape[1], None, tensor.shape[3]]), cache
    )
