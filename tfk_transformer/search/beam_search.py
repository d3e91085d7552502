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

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import PAD_ID, START_ID
from tfk_transformer.layers.masks import beam_mask
from tfk_transformer.models.token_model import Beams, StepFunction
from tfk_transformer.search.greedy_search import cache_shapes, count_done, search_greedily
from tfk_transformer.search.next_token import NEG_INF, uses_logits_processors
from tfk_transformer.search.search_state import (
    Hypotheses,
    Limits,
    LoopBounds,
    SearchRows,
    SearchState,
)
from tfk_transformer.search.selection import Selection
from tfk_transformer.search.vocabulary import Candidates, VocabularyBlocks

# Rows leave the batch when 1 of 4 is done: each removal copies the caches of the other rows.
ROWS_PER_DONE = 4


class BeamSearch:
    """Searches for the best translations of batches, by decoding steps of the sentences not done.

    The `candidates` are the tokens whose logits `step` returns, which need not include a prefix.
    None: the whole vocabulary. With `has_greedy_loop`, greedy search has its own loop, which makes
    it faster in onnxruntime, but not in TensorFlow.
    """

    def __init__(
        self,
        step: StepFunction,
        limits: Limits,
        vocabulary: VocabularyBlocks,
        candidates: Candidates | None = None,
        has_greedy_loop: bool = False,
    ) -> None:
        self.has_greedy_loop = has_greedy_loop
        self.step = step
        self.limits = limits
        self.candidates = candidates
        self.selection = Selection(limits, vocabulary, candidates)

    def run(
        self,
        cache: Tensor,
        memory: Tensor,
        source_mask: Tensor,
        max_lengths: Tensor,
        prefix: Tensor,
    ) -> Hypotheses:
        """Return the n_best hypotheses of each sentence, with their prefixes.

        Args:
            cache: the cache before the first step, tensors (B, …); they grow along axis 2.
            memory: a structure of tensors (B, …) that each step reads.
            source_mask: bool (B, S), False for padding; (B, 0) without a source.
            max_lengths: int32 (B,), the maximum length of each sentence's hypotheses in tokens,
                prefix included. They replace the settings of the maximum length.
            prefix: int32 (B, P), forced first tokens of every hypothesis of a sentence, padded at
                the end; shorter than `max_lengths`. They count neither in the log-probability nor
                in the length penalty.
        """
        batch_size = tf.size(max_lengths)
        max_length = max_lengths[:, None]
        prefix_length = tf.math.count_nonzero(prefix, axis=1, keepdims=True, dtype=tf.int32)
        # A search makes a step even if its maximum length is 0. There may be no sentences.
        longest = tf.reduce_max(tf.pad(max_lengths, [[0, 1]], constant_values=1))
        lengths = [tf.range(longest + 1) - prefix_length, max_length - prefix_length]
        penalized_lengths = tf.maximum(tf.concat(lengths, axis=1), 0)
        # A sum with a larger number could exceed 32 bits.
        min_length = tf.minimum(self.limits.min_length, max_length + 1)
        rows = SearchRows(
            batch_index=tf.range(batch_size),
            max_length=max_length,
            min_length=(prefix_length + min_length)[:, :, None],
            penalties=self.selection.penalty(penalized_lengths)[:, :, None],
            prefix=prefix,
            memory=memory,
            source_mask=source_mask,
            candidate_mask=() if self.candidates is None else self.candidates.mask,
        )
        state = self._first_state(cache, rows)
        n_best = self.limits.n_best
        results = Hypotheses(
            tf.zeros([batch_size, n_best, 1], tf.int32), tf.fill([batch_size, n_best], NEG_INF)
        )
        _, _, results = tf.while_loop(
            lambda rows, state, results: tf.size(rows.batch_index) > 0,
            self._run_and_remove_done,
            (rows, state, results),
            shape_invariants=(
                tf.nest.map_structure(lambda t: tf.TensorShape([None, *t.shape[1:]]), rows),
                _state_shapes(state),
                tf.nest.map_structure(_any_shape, results),
            ),
        )
        ids = results.ids[:, :, 1:]  # without the start token
        exists = (results.scores > NEG_INF / 2)[:, :, None]
        return Hypotheses(tf.where(exists, ids, PAD_ID), results.scores)

    def _first_state(self, cache: Tensor, rows: SearchRows) -> SearchState:
        batch_size = tf.size(rows.batch_index)
        beams = self.limits.beam_size
        excluded = tf.fill([batch_size, beams], NEG_INF)
        # All beams start equal. Only the first is possible, or they would stay copies of each
        # other. Sampling starts from all beams.
        possible = tf.equal(tf.range(beams), 0) | tf.greater(self.limits.temperature, 0.0)
        return SearchState(
            length=tf.constant(0),
            ids=tf.fill([batch_size, 2 * beams, 1], START_ID),
            lineage=tf.zeros([batch_size, beams, 0]),
            log_probs=tf.where(possible, 0.0, excluded),
            coverage=tf.zeros([batch_size, beams, tf.shape(rows.source_mask)[1]]),
            cache=cache,
            finished_scores=excluded,
            done=tf.fill([batch_size, 1], False),
        )

    def _run_and_remove_done(
        self, rows: SearchRows, state: SearchState, results: Hypotheses
    ) -> tuple[SearchRows, SearchState, Hypotheses]:
        """Search until enough sentences are done, store their results, and remove their rows."""
        bounds = self._bounds(rows)
        if self.has_greedy_loop:  # then one of the two loops makes no step
            num_done = bounds.num_done_greedily
            state = search_greedily(self.step, self.selection, state, rows, num_done)
        state = tf.while_loop(
            lambda s: count_done(s.done) < bounds.num_done,
            lambda s: (self._advance(s, rows, bounds),),
            (state,),
            shape_invariants=(_state_shapes(state),),
        )[0]
        longer = state.length + 1 - tf.shape(results.ids)[2]
        ids = tf.pad(results.ids, [[0, 0], [0, 0], [0, longer]], constant_values=PAD_ID)
        # Rows that stay are stored too, and again when they leave: simpler than selecting rows, and
        # not slower.
        index = rows.batch_index[:, None]
        n_best = self.limits.n_best
        results = Hypotheses(
            tf.tensor_scatter_nd_update(ids, index, state.ids[:, :n_best]),
            tf.tensor_scatter_nd_update(results.scores, index, state.finished_scores[:, :n_best]),
        )
        staying = tf.cast(tf.where(tf.logical_not(state.done[:, 0]))[:, 0], tf.int32)
        rows, remaining = tf.nest.map_structure(
            lambda t: tf.gather(t, staying), (rows, state._replace(length=()))
        )
        return rows, remaining._replace(length=state.length), results

    def _bounds(self, rows: SearchRows) -> LoopBounds:
        limits = self.limits
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
        num_done = tf.where(count < ROWS_PER_DONE, count, share)
        is_greedy = (
            tf.equal(limits.beam_size, 1)
            & tf.logical_not(uses_more)
            & tf.not_equal(limits.forced_eos, 1)
            & tf.less_equal(limits.min_length, 1)  # every hypothesis has a token
        )
        return LoopBounds(
            num_done=num_done,
            rare_length=rare_length,
            num_done_greedily=tf.where(is_greedy, num_done, 0),
        )

    def _advance(self, state: SearchState, rows: SearchRows, bounds: LoopBounds) -> SearchState:
        """Extend every live hypothesis by one token."""
        beams = self.limits.beam_size
        new_lineage = tf.tile(beam_mask(beams)[0], [tf.size(rows.batch_index), 1, 1])
        lineage = tf.concat([state.lineage, new_lineage], axis=2)  # (A, M, (length+1)*M)
        ids = state.ids[:, beams:]
        live = Beams(ids, ids[:, :, -1], state.length, lineage[:, None])
        prediction = self.step(live, state.cache, rows.memory)
        state = state._replace(length=state.length + 1, lineage=lineage, cache=prediction.cache)
        return self.selection.select(live.ids, prediction, state, rows, bounds)


def _any_shape(tensor: Tensor) -> tf.TensorShape:
    return tf.TensorShape([None] * tensor.shape.rank)


def _state_shapes(state: SearchState) -> SearchState:
    """Return the shape invariants of a state, which grows in a loop."""
    shapes = {name: _any_shape(value) for name, value in state._asdict().items() if name != "cache"}
    return SearchState(**shapes, cache=cache_shapes(state.cache))
