"""Greedy search, beam search and sampling over a cached decoding step, in TensorFlow. The Keras
model and exports run the same code.

The search keeps M open hypotheses for each sentence. Each step considers the best 2M continuations:
those among the first M that end become finished hypotheses, and the best M that do not end stay
open. A sentence is done when it has M finished hypotheses, when no open one can still enter the
best `n_best`, or when it reaches its greatest length. There, the continuations that do not end are
cut and compete with the finished hypotheses. With M = 1 this is greedy search. With a temperature,
each of the M hypotheses draws its next token at random.

The sentences of a batch do not influence each other, and leave the batch when they are done: an
inner loop runs until a quarter of them are done, then an outer loop stores their results and
continues with the other rows. All state is plain tensors, so that the search converts to one ONNX
`Loop` inside another.

The KV cache is never reordered. It holds the keys and values of every hypothesis of a sentence, and
each hypothesis has a mask of the positions that it descends from: when hypotheses change places,
only their masks move.
"""

from collections import namedtuple
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, cast

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.constants import END_ID, LENGTH_ALLOWANCE, PAD_ID, START_ID
from tfk_transformer.generation.candidates import CANDIDATE_BLOCK, Candidates
from tfk_transformer.generation.next_token import (
    IMPOSSIBLE,
    Choices,
    VocabularyBlocks,
    choose,
    choose_plainly,
    how_many,
    rules_ask,
)
from tfk_transformer.layers.masks import own_mask
from tfk_transformer.models.base import Beams

# Rows leave when one of 4 is done: each time costs a copy of the other rows' caches.
LEAVE_TOGETHER = 4
LEAST_ATTENTION = 1e-6  # the minimum attention of a source token, since coverage takes a logarithm


class Hypotheses(NamedTuple):
    """The result of a search, best first. Where there are fewer than n_best hypotheses, padding
    with a score of -1e9.
    """

    ids: Tensor  # int32 (B, n_best, T): tokens, the end token unless cut at max_length, padding
    scores: Tensor  # float32 (B, n_best): log-probability / length penalty + coverage penalty


# The fields of `SearchSettings`; type checkers know no named tuple whose fields are computed.
_Settings: Tensor = cast("Tensor", namedtuple("_Settings", SETTING_DTYPES))


class Limits(_Settings):
    """Search settings as tensors or Python numbers, with the names and in the order of
    `SearchSettings`.
    """

    __slots__ = ()

    def longest(self, source_lengths: Tensor) -> Tensor:
        """Return the greatest target length (B,) for sources of these lengths (B,)."""
        allowed = tf.math.ceil(tf.cast(source_lengths, tf.float32) * self.max_length_factor)
        return tf.minimum(self.max_length, tf.cast(allowed, tf.int32) + LENGTH_ALLOWANCE)


class SearchInputs(NamedTuple):
    """The inputs of a search; the first axis is the sentence."""

    memory: Tensor  # a structure of tensors (B, …) that each step reads
    # bool (B, S), which tokens of the source are not padding, for the coverage penalty; (B, 0) if
    # there is no source.
    real: Tensor
    hidden: Tensor = ()  # float32 (B, 1, n), `Candidates.hidden`; nothing without a shortlist


class _Rows(NamedTuple):
    """The data of the A sentences still in the batch that do not change from step to step."""

    sentence: Tensor  # int32 (A,): the index of each sentence in the batch
    longest: Tensor  # int32 (A, 1)
    prefix: Tensor  # int32 (A, P): forced first tokens, padded
    given: Tensor  # int32 (A, 1): the length of the prefix
    source: SearchInputs


class _State(NamedTuple):
    """The data that each step changes."""

    length: Tensor  # int32 (): tokens so far
    # int32 (A, 2M, length+1): finished hypotheses and then open ones, the start token first.
    ids: Tensor
    # float32 (A, M, length*M), additive: hides the cache positions of other hypotheses.
    lineage: Tensor
    # float32 (A, M): log-probabilities of open hypotheses, descending; impossible once the sentence
    # is done.
    log_probs: Tensor
    coverage: Tensor  # float32 (A, M, S): the sum of the attention to each source token
    cache: Tensor  # each layer's keys and values (A, H, length*M, …)
    finished_scores: Tensor  # float32 (A, M), descending
    done: Tensor  # bool (A, 1)


class _Continuations(NamedTuple):
    """The best continuations of the open hypotheses, 2M a sentence, best first."""

    log_probs: Tensor  # float32 (A, 2M)
    tokens: Tensor  # int32 (A, 2M)
    parents: Tensor  # int32 (A, 2M): the open hypothesis that each continues
    ending: Tensor  # bool (A, 2M): whether its token is the end token


# (open hypotheses, cache, memory) -> `Step` of `models.base`.
Step: TypeAlias = Callable[[Beams, Tensor, Tensor], Tensor]


def penalty(length: Tensor, alpha: Tensor) -> Tensor:
    """Return ((5 + length) / 6) ** alpha (arXiv:1609.08144, equation 14), float32."""
    return tf.pow((5.0 + tf.cast(length, tf.float32)) / 6.0, tf.cast(alpha, tf.float32))


def beam_search(
    step: Step,
    cache: Tensor,
    source: SearchInputs,
    longest: Tensor,
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
        longest: int32 (B,), the greatest length of each sentence's hypotheses in tokens, prefix
            included.
        limits: the settings; `longest` replaces those about the greatest length.
        prefix: int32 (B, P), forced first tokens of every hypothesis of a sentence, padded at the
            end; fewer than `longest`. They count neither in the log-probability nor in the length
            penalty.
        candidates: the tokens whose logits `step` returns, which need not include a prefix. None:
            the whole vocabulary.
        vocabulary: the whole vocabulary. None: of the size that the shape of the logits has.

    Returns:
        The n_best hypotheses of each sentence, with their prefixes.
    """
    batch = tf.size(longest)
    if prefix is None:
        prefix = tf.zeros([batch, 0], tf.int32)
    given = tf.math.count_nonzero(prefix, axis=1, keepdims=True, dtype=tf.int32)
    rows = _Rows(tf.range(batch), longest[:, None], prefix, given, source)
    state = _first_state(cache, rows, limits)

    def advance(state: _State, rows: _Rows) -> _State:
        return _advance(step, state, rows, limits, candidates, vocabulary)

    results = Hypotheses(
        tf.zeros([batch, limits.n_best, 1], tf.int32), tf.fill([batch, limits.n_best], IMPOSSIBLE)
    )
    _, _, found = tf.while_loop(
        lambda rows, state, results: tf.size(rows.sentence) > 0,
        lambda rows, state, results: _run_and_leave(advance, rows, state, results, limits),
        (rows, state, results),
        shape_invariants=(
            tf.nest.map_structure(_any_rows, rows),
            _any_state(state),
            tf.nest.map_structure(_any_shape, results),
        ),
    )
    ids = found.ids[:, :, 1:]  # without the start token
    return Hypotheses(
        tf.where((found.scores > IMPOSSIBLE / 2)[:, :, None], ids, PAD_ID), found.scores
    )


def _any_shape(tensor: Tensor) -> tf.TensorShape:
    return tf.TensorShape([None] * tensor.shape.rank)


def _any_rows(tensor: Tensor) -> tf.TensorShape:
    return tf.TensorShape([None, *tensor.shape[1:]])


def _any_state(state: _State) -> _State:
    cache = tf.nest.map_structure(
        lambda t: tf.TensorShape([None, t.shape[1], None, t.shape[3]]), state.cache
    )
    shapes = {name: _any_shape(value) for name, value in state._asdict().items() if name != "cache"}
    return _State(**shapes, cache=cache)


def _first_state(cache: Tensor, rows: _Rows, limits: Limits) -> _State:
    batch, beams = tf.size(rows.sentence), limits.beam_size
    impossible = tf.fill([batch, beams], IMPOSSIBLE)
    # All beams start equal: only the first is possible, or they would stay copies of each other.
    # Sampling starts from all.
    possible = tf.equal(tf.range(beams), 0) | tf.greater(limits.temperature, 0.0)
    return _State(
        length=tf.constant(0),
        ids=tf.fill([batch, 2 * beams, 1], START_ID),
        lineage=tf.zeros([batch, beams, 0]),
        log_probs=tf.where(possible, 0.0, impossible),
        coverage=tf.zeros([batch, beams, tf.shape(rows.source.real)[1]]),
        cache=cache,
        finished_scores=impossible,
        done=tf.fill([batch, 1], False),
    )


def _run_and_leave(
    advance: Callable[[_State, _Rows], _State],
    rows: _Rows,
    state: _State,
    results: Hypotheses,
    limits: Limits,
) -> tuple[_Rows, _State, Hypotheses]:
    """Search until enough sentences are done, then store their results and remove their rows."""
    state = tf.while_loop(
        lambda s: LEAVE_TOGETHER * tf.math.count_nonzero(s.done, dtype=tf.int32) < tf.size(s.done),
        lambda s: (advance(s, rows),),
        (state,),
        shape_invariants=(_any_state(state),),
    )[0]
    ids = tf.pad(
        results.ids,
        [[0, 0], [0, 0], [0, state.length + 1 - tf.shape(results.ids)[2]]],
        constant_values=PAD_ID,
    )
    # Rows that stay are stored too, and again when they leave: simpler than selecting rows, and not
    # slower.
    places = rows.sentence[:, None]
    results = Hypotheses(
        tf.tensor_scatter_nd_update(ids, places, state.ids[:, : limits.n_best]),
        tf.tensor_scatter_nd_update(
            results.scores, places, state.finished_scores[:, : limits.n_best]
        ),
    )
    staying = tf.cast(tf.where(tf.logical_not(state.done[:, 0]))[:, 0], tf.int32)
    rows, kept = tf.nest.map_structure(
        lambda t: tf.gather(t, staying), (rows, state._replace(length=()))
    )
    return rows, kept._replace(length=state.length), results


def _advance(
    step: Step,
    state: _State,
    rows: _Rows,
    limits: Limits,
    candidates: Candidates | None,
    vocabulary: VocabularyBlocks | None,
) -> _State:
    """Extend every open hypothesis by one token."""
    own = tf.tile(own_mask(limits.beam_size)[0], [tf.size(rows.sentence), 1, 1])
    lineage = tf.concat([state.lineage, own], axis=2)  # (A, M, (length+1)*M)
    ids = state.ids[:, limits.beam_size :]
    logits, cache, attention = step(
        Beams(ids, state.length, lineage[:, None]), state.cache, rows.source.memory
    )
    too_short = state.length + 1 - rows.given < limits.min_length
    if vocabulary is None:
        tokens = tf.nest.flatten(logits)[0] if candidates is None else candidates.places
        vocabulary = VocabularyBlocks.of(tokens.shape[-1])
    count = how_many(limits, vocabulary.size if candidates is None else candidates.most())

    def plainly() -> tuple[Choices, Tensor, Tensor]:
        if candidates is None:
            choices = choose_plainly(logits, limits, too_short, vocabulary, count)
        else:
            among, hidden = (
                VocabularyBlocks(tf.size(candidates.tokens), CANDIDATE_BLOCK),
                rows.source.hidden,
            )
            found = choose_plainly(logits, limits, too_short, among, count, hidden)
            choices = found._replace(tokens=tf.gather(candidates.tokens, found.tokens))
        return choices, state.coverage, tf.zeros(tf.shape(own)[:2])

    def with_all_settings() -> tuple[Choices, Tensor, Tensor]:
        whole = (
            logits if candidates is None else candidates.of_vocabulary(logits, rows.source.hidden)
        )
        choices = choose(whole, ids, limits, too_short, vocabulary, count)
        choices = _force_prefix(choices, count, state.length, rows.prefix)
        coverage = state.coverage + attention
        return choices, coverage, _coverage_score(coverage, rows.source.real, limits)

    # One branch around everything that most searches do not use: a step is so short that each of
    # its operators counts.
    choices, coverage, coverage_score = tf.cond(
        _asks_more(rows, limits), with_all_settings, plainly
    )
    grown = state._replace(length=state.length + 1, lineage=lineage, coverage=coverage, cache=cache)
    return _select(grown, choices, count, coverage_score, rows, limits)


def _asks_more(rows: _Rows, limits: Limits) -> Tensor:
    """Return whether a search uses more than log-probabilities and lengths: bool ()."""
    return (
        rules_ask(limits)
        | tf.not_equal(limits.coverage_penalty, 0.0)
        | tf.greater(tf.shape(rows.prefix)[1], 0)
    )


def _force_prefix(choices: Choices, count: Tensor, length: Tensor, prefix: Tensor) -> Choices:
    """Where the prefix has a token at this length, make that token certain and every other one
    impossible.
    """
    # (A, 1, 1)
    column = tf.gather(
        tf.pad(prefix, [[0, 0], [0, 1]]), tf.minimum(length, tf.shape(prefix)[1]), axis=1
    )[:, None, None]
    forced = tf.not_equal(column, PAD_ID)
    certain = tf.where(tf.equal(tf.range(count), 0), 0.0, IMPOSSIBLE)  # (k,)
    return Choices(
        tf.where(forced, certain, choices.log_probs), tf.where(forced, column, choices.tokens)
    )


def _select(
    state: _State,
    choices: Choices,
    count: Tensor,
    coverage_score: Tensor,
    rows: _Rows,
    limits: Limits,
) -> _State:
    """Continue hypotheses with the best choices, and merge those that end into the finished ones.

    Args:
        state: the state after this step, except for the fields that depend on the choices.
        choices: the tokens that may follow each hypothesis.
        count: int32 (), k, the number of choices.
        coverage_score: float32 (A, M), the coverage score of each open hypothesis. It is added to
            the scores of the continuations that end.
        rows: see `_Rows`.
        limits: see `Limits`.
    """
    continuations = _continuations(state, choices, count, limits)
    reached = state.length >= rows.longest
    log_probs, kept = tf.math.top_k(
        tf.where(continuations.ending, IMPOSSIBLE, continuations.log_probs), k=limits.beam_size
    )
    finished_scores, chosen = _finish(state, continuations, coverage_score, reached, rows, limits)
    done = state.done | reached | _cannot_improve(finished_scores, log_probs, rows, limits)
    grown = _descend(state, continuations, chosen, kept, rows, limits)
    return grown._replace(
        log_probs=tf.where(done, IMPOSSIBLE, log_probs), finished_scores=finished_scores, done=done
    )


def _continuations(
    state: _State, choices: Choices, count: Tensor, limits: Limits
) -> _Continuations:
    """Find the best 2M continuations of a sentence's open hypotheses."""
    beams = limits.beam_size
    totals = tf.reshape(state.log_probs[:, :, None] + choices.log_probs, [-1, beams * count])
    best, flat = tf.math.top_k(totals, k=2 * beams)  # (A, 2M)
    tokens, parents = (
        tf.gather(tf.reshape(choices.tokens, [-1, beams * count]), flat, batch_dims=1),
        flat // count,
    )
    return _Continuations(best, tokens, parents, tf.equal(tokens, END_ID))


def _finish(
    state: _State,
    continuations: _Continuations,
    coverage_score: Tensor,
    reached: Tensor,
    rows: _Rows,
    limits: Limits,
) -> tuple[Tensor, Tensor]:
    """Merge the continuations that end into the finished hypotheses.

    Returns:
        The scores (A, M) of the best finished hypotheses, and their places (A, M) among the M
        finished ones before and the 2M continuations after them.
    """
    beams, best = limits.beam_size, continuations.log_probs
    scores = best / penalty(state.length - rows.given, limits.length_penalty) + tf.gather(
        coverage_score, continuations.parents, batch_dims=1
    )
    # Of the continuations with an end token, only those among the first M end; of the others, those
    # that are cut. Impossible ones never do.
    needed = tf.where(continuations.ending, _needed(tf.range(2 * beams) < beams), _needed(reached))
    scores = tf.where(best > needed, scores, IMPOSSIBLE)
    found: tuple[Tensor, Tensor] = tf.math.top_k(
        tf.concat([state.finished_scores, scores], axis=1), k=beams
    )
    return found


def _descend(
    state: _State,
    continuations: _Continuations,
    chosen: Tensor,
    kept: Tensor,
    rows: _Rows,
    limits: Limits,
) -> _State:
    """Move ids, lineages and coverage to the hypotheses of the next step.

    Args:
        state: before the move.
        continuations: see `_Continuations`.
        chosen: int32 (A, M), the places of finished hypotheses, see `_finish`.
        kept: int32 (A, M), the continuations that stay open.
        rows: see `_Rows`.
        limits: see `Limits`.
    """
    beams = limits.beam_size
    # Finished hypotheses come first, then the continuations. The next state consists of the places
    # chosen and kept.
    places = tf.concat([chosen, beams + kept], axis=1)  # (A, 2M)
    older = tf.tile(tf.range(beams)[None, :], [tf.size(rows.sentence), 1])  # (A, M)
    origins = tf.gather(
        tf.concat([older, beams + continuations.parents], axis=1), places, batch_dims=1
    )
    added = tf.gather(
        tf.concat([tf.fill(tf.shape(older), PAD_ID), continuations.tokens], axis=1),
        places,
        batch_dims=1,
    )
    survivors = tf.gather(continuations.parents, kept, batch_dims=1)  # (A, M)
    return state._replace(
        ids=tf.concat([tf.gather(state.ids, origins, batch_dims=1), added[:, :, None]], axis=2),
        lineage=tf.gather(state.lineage, survivors, batch_dims=1),
        coverage=tf.gather(state.coverage, survivors, batch_dims=1),
    )


def _needed(may_end: Tensor) -> Tensor:
    """Return the log-probability that a candidate must exceed to end, float32; infinite where it
    may not end.
    """
    return tf.where(may_end, IMPOSSIBLE / 2, float("inf"))


def _coverage_score(coverage: Tensor, real: Tensor, limits: Limits) -> Tensor:
    """Return beta * sum over source tokens of log(min(attention to it, 1)) (arXiv:1609.08144,
    equation 14): (A, M).
    """
    counted = tf.cast(real[:, None], tf.float32)
    logs = tf.math.log(tf.clip_by_value(coverage, LEAST_ATTENTION, 1.0)) * counted  # (A, M, S)
    # onnxruntime does not sum over nothing.
    return limits.coverage_penalty * tf.reduce_sum(tf.pad(logs, [[0, 0], [0, 0], [0, 1]]), axis=2)


def _cannot_improve(
    finished_scores: Tensor, log_probs: Tensor, rows: _Rows, limits: Limits
) -> Tensor:
    """Return which sentences have M finished hypotheses, or n_best that no open one can exceed:
    bool (A, 1).

    The best possible score of an open hypothesis is known: its log-probability only falls, its
    length penalty grows at most to that of its greatest length, and its coverage penalty is never
    positive.
    """
    full = finished_scores[:, -1:] > IMPOSSIBLE / 2
    attainable = log_probs[:, :1] / penalty(rows.longest - rows.given, limits.length_penalty)
    return full | (
        tf.gather(finished_scores, tf.reshape(limits.n_best - 1, [1]), axis=1) >= attainable
    )
