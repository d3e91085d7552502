"""Greedy search, beam search and sampling over a cached decoding step, in TensorFlow.

The Keras model and its exports run the same code.

The search keeps M live hypotheses of each sentence. Each step selects the best 2M continuations.
The first M of these become finished hypotheses if they end. The best M that do not end stay live. A
sentence is done when it has M finished hypotheses, when no live hypothesis can still enter the best
`n_best`, or when it reaches its maximum length; `early_stopping` has other rules. At the maximum
length, the continuations that do not end are cut and compete with the finished hypotheses, or
`forced_eos` makes them end. With M = 1, this is greedy search. With a temperature, each of the M
hypotheses samples its next token.

The sentences of a batch do not influence each other. They leave the batch when they are done: an
inner loop runs until a quarter of them are done, then an outer loop stores their results and
continues with the other rows. All state is plain tensors, so the search converts to two nested ONNX
`Loop`s.

The KV cache is never reordered. It holds the keys and values of every hypothesis of a sentence. The
lineage of a hypothesis is a mask of the positions that it descends from. When hypotheses are
reordered, only the lineages move. The states of SSRUs are not reordered either: the lineage's part
of the previous position says which state each hypothesis continues.
"""

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import PAD_ID, START_ID
from tfk_transformer.layers.masks import beam_mask
from tfk_transformer.models.search_steps import Beams
from tfk_transformer.search.candidates import Candidates
from tfk_transformer.search.limits import Limits
from tfk_transformer.search.next_token import (
    NEG_INF,
    uses_logits_processors,
)
from tfk_transformer.search.search_state import (
    EndOfSearch,
    Hypotheses,
    LoopBounds,
    SearchInputs,
    SearchRows,
    SearchState,
)
from tfk_transformer.search.selection import Prediction, select
from tfk_transformer.search.top_k import VocabularyBlocks

# Rows leave the batch when 1 of 4 is done: each removal copies the caches of the other rows.
ROWS_PER_DONE = 4


# (live hypotheses, cache, memory) -> `Step` of `models.search_steps`.
Step: TypeAlias = Callable[[Beams, Tensor, Tensor], Tensor]


def beam_search(
    step: Step,
    cache: Tensor,
    source: SearchInputs,
    max_lengths: Tensor,
    limits: Limits,
    prefix: Tensor | None = None,
    candidates: Candidates | None = None,
    vocabulary: VocabularyBlocks | None = None,
) -> Hypotheses:
    """Search for the best translations of a batch.

    Args:
        step: (`Beams`, cache, memory) -> `Step`, for the A sentences still in the batch.
        cache: the cache before the first step, tensors (B, …); they grow along axis 2.
        source: the inputs of the search.
        max_lengths: int32 (B,), the maximum length of each sentence's hypotheses in tokens, prefix
            included.
        limits: the settings, except that `max_lengths` replaces the settings of the maximum length.
        prefix: int32 (B, P), forced first tokens of every hypothesis of a sentence, padded at the
            end; shorter than `max_lengths`. They count neither in the log-probability nor in the
            length penalty.
        candidates: the tokens whose logits `step` returns, which need not include a prefix.
            Defaults to None: the whole vocabulary.
        vocabulary: the whole vocabulary. Defaults to None: its size is the last dimension of the
            logits.

    Returns:
        The n_best hypotheses of each sentence, with their prefixes.
    """
    batch_size = tf.size(max_lengths)
    if prefix is None:
        prefix = tf.zeros([batch_size, 0], tf.int32)
    prefix_length = tf.math.count_nonzero(prefix, axis=1, keepdims=True, dtype=tf.int32)
    end = EndOfSearch.of(limits)
    rows = SearchRows(
        batch_index=tf.range(batch_size),
        max_length=max_lengths[:, None],
        prefix=prefix,
        prefix_length=prefix_length,
        source=source,
    )
    state = _first_state(cache, rows, limits)

    def advance(state: SearchState, rows: SearchRows, bounds: LoopBounds) -> SearchState:
        return _advance(step, state, rows, limits, end, bounds, candidates, vocabulary)

    results = Hypotheses(
        tf.zeros([batch_size, limits.n_best, 1], tf.int32),
        tf.fill([batch_size, limits.n_best], NEG_INF),
    )
    _, _, results = tf.while_loop(
        lambda rows, state, results: tf.size(rows.batch_index) > 0,
        lambda rows, state, results: _run_and_remove_done(
            advance, rows, state, results, limits, end
        ),
        (rows, state, results),
        shape_invariants=(
            tf.nest.map_structure(lambda t: tf.TensorShape([None, *t.shape[1:]]), rows),
            _state_shapes(state),
            tf.nest.map_structure(_any_shape, results),
        ),
    )
    ids = results.ids[:, :, 1:]  # without the start token
    return Hypotheses(
        tf.where((results.scores > NEG_INF / 2)[:, :, None], ids, PAD_ID),
        results.scores,
    )


def _any_shape(tensor: Tensor) -> tf.TensorShape:
    return tf.TensorShape([None] * tensor.shape.rank)


def _state_shapes(state: SearchState) -> SearchState:
    """Return the shape invariants of a state, which grows in a loop."""
    cache = tf.nest.map_structure(
        lambda t: tf.TensorShape([None, t.shape[1], None, t.shape[3]]), state.cache
    )
    shapes = {name: _any_shape(value) for name, value in state._asdict().items() if name != "cache"}
    return SearchState(**shapes, cache=cache)


def _first_state(cache: Tensor, rows: SearchRows, limits: Limits) -> SearchState:
    batch_size = tf.size(rows.batch_index)
    beams = limits.beam_size
    excluded = tf.fill([batch_size, beams], NEG_INF)
    # All beams start equal. Only the first is possible, or they would stay copies of each other.
    # Sampling starts from all beams.
    possible = tf.equal(tf.range(beams), 0) | tf.greater(limits.temperature, 0.0)
    return SearchState(
        length=tf.constant(0),
        ids=tf.fill([batch_size, 2 * beams, 1], START_ID),
        lineage=tf.zeros([batch_size, beams, 0]),
        log_probs=tf.where(possible, 0.0, excluded),
        coverage=tf.zeros([batch_size, beams, tf.shape(rows.source.source_mask)[1]]),
        cache=cache,
        finished_scores=excluded,
        done=tf.fill([batch_size, 1], False),
    )


def _run_and_remove_done(
    advance: Callable[[SearchState, SearchRows, LoopBounds], SearchState],
    rows: SearchRows,
    state: SearchState,
    results: Hypotheses,
    limits: Limits,
    end: EndOfSearch,
) -> tuple[SearchRows, SearchState, Hypotheses]:
    """Search until enough sentences are done, then store their results and remove their rows."""
    bounds = _bounds(rows, limits, end)
    state = tf.while_loop(
        lambda s: tf.math.count_nonzero(s.done, dtype=tf.int32) < bounds.num_done,
        lambda s: (advance(s, rows, bounds),),
        (state,),
        shape_invariants=(_state_shapes(state),),
    )[0]
    ids = tf.pad(
        results.ids,
        [[0, 0], [0, 0], [0, state.length + 1 - tf.shape(results.ids)[2]]],
        constant_values=PAD_ID,
    )
    # Rows that stay are stored too, and again when they leave: simpler than selecting rows, and not
    # slower.
    index = rows.batch_index[:, None]
    results = Hypotheses(
        tf.tensor_scatter_nd_update(ids, index, state.ids[:, : limits.n_best]),
        tf.tensor_scatter_nd_update(
            results.scores,
            index,
            state.finished_scores[:, : limits.n_best],
        ),
    )
    staying = tf.cast(tf.where(tf.logical_not(state.done[:, 0]))[:, 0], tf.int32)
    rows, remaining = tf.nest.map_structure(
        lambda t: tf.gather(t, staying),
        (rows, state._replace(length=())),
    )
    return rows, remaining._replace(length=state.length), results


def _bounds(rows: SearchRows, limits: Limits, end: EndOfSearch) -> LoopBounds:
    count = tf.size(rows.batch_index)
    uses_more = (
        uses_logits_processors(limits)
        | tf.not_equal(limits.coverage_penalty, 0.0)
        | tf.not_equal(limits.renormalize_logits, 0)
        | tf.greater(tf.shape(rows.prefix)[1], 0)
    )
    shortest = tf.reduce_min(rows.max_length)
    forced_length = tf.where(tf.equal(limits.forced_eos, 1), shortest, tf.int32.max)
    rare_length = tf.where(uses_more, 0, forced_length)
    share = (count + ROWS_PER_DONE - 1) // ROWS_PER_DONE
    return LoopBounds(
        num_done=tf.where(count < ROWS_PER_DONE, count, share),
        rare_length=rare_length,
        greedy_length=tf.where(tf.equal(limits.beam_size, 1), rare_length, 0),
        last_penalty=end.penalty(rows.max_length - rows.prefix_length),
    )


def _advance(
    step: Step,
    state: SearchState,
    rows: SearchRows,
    limits: Limits,
    end: EndOfSearch,
    bounds: LoopBounds,
    candidates: Candidates | None,
    vocabulary: VocabularyBlocks | None,
) -> SearchState:
    """Extend every live hypothesis by one token."""
    new_lineage = tf.tile(beam_mask(limits.beam_size)[0], [tf.size(rows.batch_index), 1, 1])
    lineage = tf.concat([state.lineage, new_lineage], axis=2)  # (A, M, (length+1)*M)
    beams = Beams(state.ids[:, limits.beam_size :], state.length, lineage[:, None])
    logits, cache, attention = step(beams, state.cache, rows.source.memory)
    if vocabulary is None:
        tokens = tf.nest.flatten(logits)[0] if candidates is None else candidates.indices
        vocabulary = VocabularyBlocks.of(tokens.shape[-1])
    state = state._replace(length=state.length + 1, lineage=lineage, cache=cache)
    prediction = Prediction(beams.ids, logits, attention, vocabulary, candidates)
    selection = select(prediction, state, rows, limits, end, bounds)
    return state._replace(**selection._asdict())
