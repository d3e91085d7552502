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

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import PENALTY_FORMS, length_penalty
from tfk_transformer.constants import END_ID, PAD_ID, START_ID
from tfk_transformer.generation.candidates import CANDIDATE_BLOCK, Candidates
from tfk_transformer.generation.limits import Limits
from tfk_transformer.generation.next_token import (
    NEG_INF,
    NextTokens,
    VocabularyBlocks,
    choose,
    choose_top_k,
    num_next_tokens,
    uses_logits_processors,
)
from tfk_transformer.layers.masks import beam_mask
from tfk_transformer.models.search_steps import Beams

# Rows leave the batch when 1 of 4 is done: each removal copies the caches of the other rows.
ROWS_PER_DONE = 4
MIN_ATTENTION = 1e-6  # to a source token, since the coverage penalty takes a logarithm


class Hypotheses(NamedTuple):
    """The result of a search, best first. Missing hypotheses are padding with a score of -1e9."""

    ids: Tensor  # int32 (B, n_best, T): tokens, the end token unless cut at max_length, padding
    scores: Tensor  # float32 (B, n_best): log-probability / length penalty + coverage penalty


class SearchInputs(NamedTuple):
    """The inputs of a search; the first axis is the sentence."""

    memory: Tensor  # a structure of tensors (B, …) that each step reads
    # bool (B, S), False for padding, for the coverage penalty; (B, 0) without a source.
    source_mask: Tensor
    candidate_mask: Tensor = ()  # float32 (B, 1, n), `Candidates.mask`; empty without a shortlist


class _Rows(NamedTuple):
    """The data of the A sentences in the batch that do not change from step to step."""

    batch_index: Tensor  # int32 (A,): the index of each sentence in the batch
    max_length: Tensor  # int32 (A, 1)
    prefix: Tensor  # int32 (A, P): forced first tokens, padded
    prefix_length: Tensor  # int32 (A, 1)
    source: SearchInputs


class _State(NamedTuple):
    """The data that each step changes."""

    length: Tensor  # int32 (): tokens so far
    # int32 (A, 2M, length+1): finished hypotheses, then live ones, the start token first.
    ids: Tensor
    # float32 (A, M, length*M), additive: hides the cache positions of other hypotheses.
    lineage: Tensor
    # float32 (A, M): of live hypotheses, descending; NEG_INF once the sentence is done.
    log_probs: Tensor
    coverage: Tensor  # float32 (A, M, S): the sum of the attention to each source token
    # Each layer's keys and values (A, H, length*M, …), or the states of an SSRU (A, 1, M, D), which
    # has (A, 1, 0, D) before the first step.
    cache: Tensor
    finished_scores: Tensor  # float32 (A, M), descending
    done: Tensor  # bool (A, 1)


class _Continuations(NamedTuple):
    """The best continuations of the live hypotheses, 2M for each sentence, best first."""

    log_probs: Tensor  # float32 (A, 2M)
    tokens: Tensor  # int32 (A, 2M)
    parents: Tensor  # int32 (A, 2M): the live hypothesis that each continues
    ending: Tensor  # bool (A, 2M): whether its token is the end token


class _EndOfSearch(NamedTuple):
    """What scores and the end of a search depend on, computed before the first step."""

    alpha: Tensor  # float32 ()
    penalty_form: tuple[Tensor, Tensor]  # float32 (): a value of `PENALTY_FORMS`
    # float32 (): the score of the M-th finished hypothesis from which on a sentence is done.
    full_score: Tensor
    # int32 (1,): the rank of the finished hypothesis that live ones must be able to exceed.
    rank: Tensor
    at_current_length: Tensor  # bool (): whether the length penalty of live hypotheses stays

    @classmethod
    def of(cls, limits: Limits) -> "_EndOfSearch":
        # Greedy search ends with the first end token.
        ends_when_full = tf.equal(limits.early_stopping, 1) | tf.equal(limits.beam_size, 1)
        form = PENALTY_FORMS["gnmt"]
        for index, numbers in enumerate(PENALTY_FORMS.values()):
            is_form = tf.equal(limits.length_penalty_form, index)
            form = tuple(map(functools.partial(tf.where, is_form), numbers, form))
        count = tf.where(ends_when_full, limits.n_best, limits.beam_size)
        return cls(
            tf.cast(limits.length_penalty, tf.float32),
            form,
            tf.where(ends_when_full, NEG_INF / 2, float("inf")),
            tf.reshape(count - 1, [1]),
            tf.equal(limits.early_stopping, 0),
        )

    def penalty(self, length: Tensor) -> Tensor:
        """Return the length penalty of int32 lengths."""
        return length_penalty(tf.cast(length, tf.float32), self.alpha, self.penalty_form)


class _Bounds(NamedTuple):
    """Numbers that the steps of an inner loop compare with. They are computed before the loop."""

    rare_length: Tensor  # int32 (), see `_rare_length`
    last_penalty: Tensor  # float32 (A, 1): the length penalty of the maximum length


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
    end = _EndOfSearch.of(limits)
    rows = _Rows(
        batch_index=tf.range(batch_size),
        max_length=max_lengths[:, None],
        prefix=prefix,
        prefix_length=prefix_length,
        source=source,
    )
    state = _first_state(cache, rows, limits)

    def advance(state: _State, rows: _Rows, bounds: _Bounds) -> _State:
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


def _state_shapes(state: _State) -> _State:
    """Return the shape invariants of a state, which grows in a loop."""
    cache = tf.nest.map_structure(
        lambda t: tf.TensorShape([None, t.shape[1], None, t.shape[3]]), state.cache
    )
    shapes = {name: _any_shape(value) for name, value in state._asdict().items() if name != "cache"}
    return _State(**shapes, cache=cache)


def _first_state(cache: Tensor, rows: _Rows, limits: Limits) -> _State:
    batch_size = tf.size(rows.batch_index)
    beams = limits.beam_size
    excluded = tf.fill([batch_size, beams], NEG_INF)
    # All beams start equal. Only the first is possible, or they would stay copies of each other.
    # Sampling starts from all beams.
    possible = tf.equal(tf.range(beams), 0) | tf.greater(limits.temperature, 0.0)
    return _State(
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
    advance: Callable[[_State, _Rows, _Bounds], _State],
    rows: _Rows,
    state: _State,
    results: Hypotheses,
    limits: Limits,
    end: _EndOfSearch,
) -> tuple[_Rows, _State, Hypotheses]:
    """Search until enough sentences are done, then store their results and remove their rows."""
    bounds = _Bounds(_rare_length(rows, limits), end.penalty(rows.max_length - rows.prefix_length))
    state = tf.while_loop(
        lambda s: ROWS_PER_DONE * tf.math.count_nonzero(s.done, dtype=tf.int32) < tf.size(s.done),
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


def _rare_length(rows: _Rows, limits: Limits) -> Tensor:
    """Return the length from which on steps read the settings that most searches do not use.

    It is 0 if a search uses one of them in all steps. With `forced_eos`, it is the length at which
    hypotheses are forced to end.
    """
    uses_more = (
        uses_logits_processors(limits)
        | tf.not_equal(limits.coverage_penalty, 0.0)
        | tf.not_equal(limits.renormalize_logits, 0)
        | tf.greater(tf.shape(rows.prefix)[1], 0)
    )
    shortest = tf.reduce_min(rows.max_length)
    forced_length = tf.where(tf.equal(limits.forced_eos, 1), shortest, tf.int32.max)
    return tf.where(uses_more, 0, forced_length)


def _advance(
    step: Step,
    state: _State,
    rows: _Rows,
    limits: Limits,
    end: _EndOfSearch,
    bounds: _Bounds,
    candidates: Candidates | None,
    vocabulary: VocabularyBlocks | None,
) -> _State:
    """Extend every live hypothesis by one token."""
    new_lineage = tf.tile(beam_mask(limits.beam_size)[0], [tf.size(rows.batch_index), 1, 1])
    lineage = tf.concat([state.lineage, new_lineage], axis=2)  # (A, M, (length+1)*M)
    ids = state.ids[:, limits.beam_size :]
    beams = Beams(ids, state.length, lineage[:, None])
    logits, cache, attention = step(beams, state.cache, rows.source.memory)
    length = state.length + 1
    below_min_length = length - rows.prefix_length < limits.min_length
    if vocabulary is None:
        tokens = tf.nest.flatten(logits)[0] if candidates is None else candidates.indices
        vocabulary = VocabularyBlocks.of(tokens.shape[-1])
    k = num_next_tokens(limits, vocabulary.size if candidates is None else candidates.max_k())
    mask = rows.source.candidate_mask

    def top_k_only() -> tuple[NextTokens, Tensor, Tensor]:
        if candidates is None:
            next_tokens = choose_top_k(logits, limits, below_min_length, vocabulary, k)
        else:
            blocks = VocabularyBlocks(tf.size(candidates.tokens), CANDIDATE_BLOCK)
            top_k = choose_top_k(logits, limits, below_min_length, blocks, k, mask)
            next_tokens = top_k._replace(ids=tf.gather(candidates.tokens, top_k.ids))
        return next_tokens, state.coverage, tf.zeros(tf.shape(new_lineage)[:2])

    def with_all_settings() -> tuple[NextTokens, Tensor, Tensor]:
        expanded = logits if candidates is None else candidates.expand_logits(logits, mask)
        next_tokens = choose(expanded, ids, limits, below_min_length, vocabulary, k)
        next_tokens = _force_prefix(next_tokens, k, state.length, rows.prefix)
        cut = tf.equal(limits.forced_eos, 1) & (length >= rows.max_length)
        next_tokens = _force(next_tokens, k, cut[:, :, None], END_ID)
        coverage = state.coverage + attention
        return next_tokens, coverage, _coverage_score(coverage, rows.source.source_mask, limits)

    # One branch around everything that most searches do not use: in such a short step, each
    # operator takes a considerable share of the time.
    next_tokens, coverage, coverage_score = tf.cond(
        length >= bounds.rare_length, with_all_settings, top_k_only
    )
    state = state._replace(
        length=length,
        lineage=lineage,
        coverage=coverage,
        cache=cache,
    )
    return _select(state, next_tokens, k, coverage_score, rows, limits, end, bounds)


def _force_prefix(next_tokens: NextTokens, k: Tensor, length: Tensor, prefix: Tensor) -> NextTokens:
    """Where the prefix has a token at this length, exclude all other tokens."""
    token = tf.gather(
        tf.pad(prefix, [[0, 0], [0, 1]]),
        tf.minimum(length, tf.shape(prefix)[1]),
        axis=1,
    )[:, None, None]  # (A, 1, 1)
    return _force(next_tokens, k, tf.not_equal(token, PAD_ID), token)


def _force(next_tokens: NextTokens, k: Tensor, forced: Tensor, token: Tensor) -> NextTokens:
    """Where `forced`, bool (A, 1, 1), exclude all tokens but `token`, with log-probability 0."""
    log_probs = tf.where(tf.equal(tf.range(k), 0), 0.0, NEG_INF)  # (k,)
    return NextTokens(
        tf.where(forced, log_probs, next_tokens.log_probs),
        tf.where(forced, token, next_tokens.ids),
    )


def _select(
    state: _State,
    next_tokens: NextTokens,
    k: Tensor,
    coverage_score: Tensor,
    rows: _Rows,
    limits: Limits,
    end: _EndOfSearch,
    bounds: _Bounds,
) -> _State:
    """Continue the live hypotheses, and merge those that end into the finished ones.

    Args:
        state: the state after this step, except for the fields that depend on the next tokens.
        next_tokens: the tokens that may follow each hypothesis.
        k: int32 (), the number of next tokens.
        coverage_score: float32 (A, M), the coverage score of each live hypothesis. It is added to
            the scores of the continuations that end.
        rows: see `_Rows`.
        limits: see `Limits`.
        end: see `_EndOfSearch`.
        bounds: see `_Bounds`.
    """
    continuations = _continuations(state, next_tokens, k, limits)
    at_max_length = state.length >= rows.max_length
    log_probs, live = tf.math.top_k(
        tf.where(continuations.ending, NEG_INF, continuations.log_probs),
        k=limits.beam_size,
    )
    penalty = end.penalty(state.length - rows.prefix_length)
    finished_scores, finished = _finish(
        state, continuations, penalty, coverage_score, at_max_length, limits
    )
    compared = tf.where(end.at_current_length, penalty, bounds.last_penalty)
    final = _cannot_improve(finished_scores, log_probs, compared, end)
    done = state.done | at_max_length | final
    state = _reorder(state, continuations, finished, live, rows, limits)
    return state._replace(
        log_probs=tf.where(done, NEG_INF, log_probs),
        finished_scores=finished_scores,
        done=done,
    )


def _continuations(
    state: _State, next_tokens: NextTokens, k: Tensor, limits: Limits
) -> _Continuations:
    """Return the best 2M continuations of a sentence's live hypotheses."""
    beams = limits.beam_size
    log_probs, indices = tf.math.top_k(  # (A, 2M)
        tf.reshape(state.log_probs[:, :, None] + next_tokens.log_probs, [-1, beams * k]),
        k=2 * beams,
    )
    tokens = tf.gather(
        tf.reshape(next_tokens.ids, [-1, beams * k]),
        indices,
        batch_dims=1,
    )
    return _Continuations(log_probs, tokens, indices // k, tf.equal(tokens, END_ID))


def _finish(
    state: _State,
    continuations: _Continuations,
    penalty: Tensor,
    coverage_score: Tensor,
    at_max_length: Tensor,
    limits: Limits,
) -> tuple[Tensor, Tensor]:
    """Merge the continuations that end into the finished hypotheses.

    Returns:
        The scores (A, M) of the best finished hypotheses, and their indices (A, M) in the
        concatenation of the M previous finished hypotheses and the 2M continuations.
    """
    beams = limits.beam_size
    log_probs = continuations.log_probs
    scores = log_probs / penalty
    scores += tf.gather(coverage_score, continuations.parents, batch_dims=1)
    # A continuation with an end token ends if it is among the first M, another one if it is cut.
    # Excluded continuations never end.
    threshold = tf.where(
        continuations.ending,
        _end_threshold(tf.range(2 * beams) < beams),
        _end_threshold(at_max_length),
    )
    scores = tf.where(log_probs > threshold, scores, NEG_INF)
    best, indices = tf.math.top_k(
        tf.concat([state.finished_scores, scores], axis=1),
        k=beams,
    )
    return best, indices


def _reorder(
    state: _State,
    continuations: _Continuations,
    finished: Tensor,
    live: Tensor,
    rows: _Rows,
    limits: Limits,
) -> _State:
    """Reorder ids, lineages and coverage for the hypotheses of the next step.

    Args:
        state: before the reordering.
        continuations: see `_Continuations`.
        finished: int32 (A, M), the indices of finished hypotheses, see `_finish`.
        live: int32 (A, M), the indices of the continuations that stay live.
        rows: see `_Rows`.
        limits: see `Limits`.
    """
    beams = limits.beam_size
    # Indices of the previous finished hypotheses followed by the continuations.
    selected = tf.concat([finished, beams + live], axis=1)  # (A, 2M)
    previous = tf.tile(tf.range(beams)[None, :], [tf.size(rows.batch_index), 1])  # (A, M)
    origins = tf.gather(
        tf.concat([previous, beams + continuations.parents], axis=1),
        selected,
        batch_dims=1,
    )
    tokens = tf.gather(
        tf.concat([tf.fill(tf.shape(previous), PAD_ID), continuations.tokens], axis=1),
        selected,
        batch_dims=1,
    )
    parents = tf.gather(continuations.parents, live, batch_dims=1)  # (A, M)
    return state._replace(
        ids=tf.concat([tf.gather(state.ids, origins, batch_dims=1), tokens[:, :, None]], axis=2),
        lineage=tf.gather(state.lineage, parents, batch_dims=1),
        coverage=tf.gather(state.coverage, parents, batch_dims=1),
    )


def _end_threshold(may_end: Tensor) -> Tensor:
    """Return the log-probability above which a continuation ends, float32; infinite for never."""
    return tf.where(may_end, NEG_INF / 2, float("inf"))


def _coverage_score(coverage: Tensor, source_mask: Tensor, limits: Limits) -> Tensor:
    """Return the coverage score of each hypothesis, (A, M).

    It is beta * sum over source tokens of log(min(attention to it, 1)) (arXiv:1609.08144,
    equation 14).
    """
    mask = tf.cast(source_mask[:, None], tf.float32)
    logs = tf.math.log(tf.clip_by_value(coverage, MIN_ATTENTION, 1.0)) * mask  # (A, M, S)
    # onnxruntime cannot sum over an empty axis.
    return limits.coverage_penalty * tf.reduce_sum(
        tf.pad(logs, [[0, 0], [0, 0], [0, 1]]),
        axis=2,
    )


def _cannot_improve(
    finished_scores: Tensor, log_probs: Tensor, penalty: Tensor, end: _EndOfSearch
) -> Tensor:
    """Return whether a sentence's finished hypotheses are final, bool (A, 1).

    With an `early_stopping` of true, the best n_best are final if there are M, or if no live
    hypothesis can exceed them. The best attainable score of a live hypothesis is known: its
    log-probability only falls, its length penalty grows at most to the penalty of the maximum
    length, and its coverage penalty is never positive. Otherwise there must be M, and no live
    hypothesis that can exceed them all.

    Args:
        finished_scores: float32 (A, M), descending; NEG_INF for missing hypotheses.
        log_probs: float32 (A, M), of live hypotheses, descending.
        penalty: float32 (A, 1), the length penalty with which live hypotheses are compared.
        end: see `_EndOfSearch`.
    """
    full = finished_scores[:, -1:] > end.full_score
    attainable = log_probs[:, :1] / penalty
    worst = tf.gather(finished_scores, end.rank, axis=1)
    return full | (worst >= attainable)
