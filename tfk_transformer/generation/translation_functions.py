"""Translation and scoring with a model as TensorFlow functions, which `Translator` runs and exports
contain.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import PAD_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.generation.beam_search import Hypotheses, Limits, SearchInputs, beam_search
from tfk_transformer.generation.candidates import find_candidates
from tfk_transformer.generation.next_token import IMPOSSIBLE, VocabularyBlocks
from tfk_transformer.generation.scoring import (
    Scores,
    count_tokens,
    join,
    score_continuations,
    score_translations,
    without_end,
)
from tfk_transformer.losses import real_tokens
from tfk_transformer.models.base import TokenModel
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer


class Translations(NamedTuple):
    """Texts and their scores, best first."""

    texts: Tensor  # string (B, n_best)
    scores: Tensor  # float32 (B, n_best)


class Explained(NamedTuple):
    """Texts and their scores, with ids and the scores of each token."""

    translations: Translations
    source_ids: Tensor  # int32 (B, S)
    ids: Tensor  # int32 (B, n_best, T)
    scores: Scores  # of (B, n_best, …)


class ScoredTexts(NamedTuple):
    """Pairs of texts as ids, and the scores of each token."""

    source_ids: Tensor  # int32 (B, S)
    target_ids: Tensor  # int32 (B, T)
    scores: Scores


class TranslationFunctions:
    """Search and scoring over ids, and over strings with the tokenizers inside.

    A blank source has an empty translation with score 0. A source of more than `max_length` tokens,
    or with ids outside the vocabulary, is not cut and does not affect the other rows: it has an
    empty translation with score NaN. A `beam_size` or `n_best` below 1 counts as 1, and hypotheses
    beyond `beam_size` are blank with a score of -1e9.

    Args:
        model: a built model; its weights are read at run time.
        source_tokenizer: the tokenizer of the source texts.
        target_tokenizer: the tokenizer of the translations.
        shortlist: the tokens that a search may choose. None: all. Scoring and prefixes use the
            whole vocabulary.
        vocabulary: the target vocabulary. None: of the size that the model's configuration has.
    """

    def __init__(
        self,
        model: TokenModel,
        source_tokenizer: SubwordTokenizer,
        target_tokenizer: SubwordTokenizer,
        shortlist: Shortlist | None = None,
        vocabulary: VocabularyBlocks | None = None,
    ) -> None:
        self.model = model
        self.shortlist = shortlist
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.vocabulary = vocabulary or VocabularyBlocks.of(model.config.target_vocab_size)

    def generate(
        self, source: Tensor, limits: Limits, use_cache: bool = True, prefix: Tensor | None = None
    ) -> Hypotheses:
        """Translate ids.

        Args:
            source: int32 (B, S), tokens and end token, padded.
            limits: search settings, as tensors or numbers.
            use_cache: whether a step computes only the last position, or the whole prefix again.
            prefix: int32 (B, P), or (1, P) for all sources: forced first tokens, padded; an end
                token counts as padding. Neither the score nor the length limits include it.

        Returns:
            int32 ids (B, n_best, T), the prefix included, and float32 scores (B, n_best).
        """
        lengths, fits, ids = self._readable(source)
        possible = _possible(limits)
        fits &= _known(prefix, self.model.config.target_vocab_size)
        prefix, given = _prefix_of_each(prefix, tf.shape(source)[0])
        room = self._room(ids)
        fits &= (given < room)[:, None]
        longest = tf.minimum(possible.longest(lengths) + given, room)
        prefix = tf.where(fits, prefix, PAD_ID)
        found = _filled(
            self._search(ids, longest, possible, use_cache, prefix), tf.maximum(limits.n_best, 1)
        )
        translated = fits & (lengths > 1)[:, None]
        empty = tf.where(fits, 0.0, float("nan"))  # (B, 1)
        return Hypotheses(
            tf.where(translated[:, :, None], found.ids, PAD_ID),
            tf.where(translated, found.scores, empty),
        )

    def translate(
        self, texts: Tensor, limits: Limits, use_cache: bool = True, prefix: Tensor | None = None
    ) -> Translations:
        """Translate string texts (B,) to string texts (B, n_best) with float32 scores (B, n_best).

        Each translation begins with the text of `prefix`, string (B,) or (1,), "" where nothing is
        forced.
        """
        source = self.source_tokenizer.graph_encode(vector(texts))
        return self._texts(self.generate(source, limits, use_cache, self._encode_prefix(prefix)))

    def explain(
        self, texts: Tensor, limits: Limits, use_cache: bool = True, prefix: Tensor | None = None
    ) -> Explained:
        """Translate as `translate` does, and score each token of the hypotheses in one full masked
        pass.
        """
        source = self.source_tokenizer.graph_encode(vector(texts))
        found = self.generate(source, limits, use_cache, self._encode_prefix(prefix))
        shape = tf.shape(found.ids)
        scores = self.score_ids(
            tf.repeat(source, shape[1], axis=0),
            tf.reshape(found.ids, [shape[0] * shape[1], shape[2]]),
        )
        split = tf.nest.map_structure(
            lambda values: tf.reshape(values, tf.concat([shape[:2], tf.shape(values)[1:]], axis=0)),
            scores,
        )
        return Explained(self._texts(found), source, found.ids, split)

    def _encode_prefix(self, prefix: Tensor | None) -> Tensor:
        return None if prefix is None else self.target_tokenizer.graph_encode(vector(prefix))

    def _texts(self, found: Hypotheses) -> Translations:
        # (B*n_best, T)
        rows = tf.reshape(found.ids, [tf.size(found.scores), tf.shape(found.ids)[2]])
        return Translations(
            tf.reshape(self.target_tokenizer.graph_decode(rows), tf.shape(found.scores)),
            found.scores,
        )

    def score(self, source_texts: Tensor, target_texts: Tensor) -> ScoredTexts:
        """Score string target texts (B,) given string source texts (B,), in one full masked
        pass.
        """
        target = self.target_tokenizer.graph_encode(vector(target_texts))
        source = self.source_tokenizer.graph_encode(vector(source_texts))
        return ScoredTexts(source, target, self.score_ids(source, target))

    def score_ids(self, source: Tensor, target: Tensor) -> Scores:
        """Score target ids (B, T), tokens and end token, given source ids (B, S).

        Scores at padding are 0. Where a side is longer than `max_length` or has ids outside its
        vocabulary, the whole row is NaN.
        """
        _, source_fits, readable = self._readable(source)
        fits = (
            source_fits
            & (count_tokens(target) <= self._room(readable))[:, None]
            & _known(target, self.model.config.target_vocab_size)
        )
        counted = tf.where(fits, real_tokens(target), float("nan"))
        max_length, length = self.model.config.max_length, tf.shape(target)[1]
        scored = self._scores(readable, tf.where(fits, target, PAD_ID)[:, :max_length])
        attention = _widen(scored.attention, [length, self._attended_length(source, target)])
        return Scores(
            _widen(scored.token_log_probs, [length]) * counted,
            attention * counted[:, None, None, :, None],
        )

    def _scores(self, source: Tensor, target: Tensor) -> Scores:
        return score_translations(self.model, source, target)

    def _attended_length(self, source: Tensor, target: Tensor) -> Tensor:
        """Return S, the number of tokens that attention goes to."""
        return tf.shape(source)[1]

    def _room(self, source: Tensor) -> Tensor:
        """Return how many tokens (B,) the model may generate after each source (B, S)."""
        return tf.fill([tf.shape(source)[0]], self.model.config.max_length)

    def _readable(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the lengths (B,) of ids (B, S), whether the model can read them (B, 1), and the
        ids without rows that it cannot.
        """
        config = self.model.config
        return readable(ids, config.source_vocab_size, config.max_length)

    def _search(
        self, source: Tensor, longest: Tensor, limits: Limits, use_cache: bool, prefix: Tensor
    ) -> Hypotheses:
        return self._run(source, tf.not_equal(source, PAD_ID), longest, limits, use_cache, prefix)

    def _run(
        self,
        source: Tensor,
        real: Tensor,
        longest: Tensor,
        limits: Limits,
        use_cache: bool,
        prefix: Tensor,
    ) -> Hypotheses:
        candidates = None if self.shortlist is None else find_candidates(self.shortlist, source)
        tokens, hidden = (
            (None, ()) if candidates is None else (candidates.tokens, candidates.hidden)
        )
        step, first_cache, memory = self.model.start_search(source, use_cache, tokens)
        cache = first_cache(tf.size(longest))
        read = SearchInputs(memory, real, hidden)
        return beam_search(step, cache, read, longest, limits, prefix, candidates, self.vocabulary)


class ContinuationFunctions(TranslationFunctions):
    """The same for a decoder-only model: the source is a prompt, and its translation the
    continuation.

    A prompt and its continuation together have at most `max_length` tokens.
    """

    def _room(self, source: Tensor) -> Tensor:
        return self.model.config.max_length - count_tokens(without_end(source))

    def _search(
        self, source: Tensor, longest: Tensor, limits: Limits, use_cache: bool, prefix: Tensor
    ) -> Hypotheses:
        prompts = without_end(source)
        given, nothing_real = count_tokens(prompts), tf.zeros([tf.shape(source)[0], 0], tf.bool)
        found = self._run(
            source, nothing_real, longest + given, limits, use_cache, join(prompts, prefix)
        )
        return found._replace(ids=_shift_left(found.ids, given))

    def _scores(self, source: Tensor, target: Tensor) -> Scores:
        return score_continuations(self.model, without_end(source), target)

    def _attended_length(self, source: Tensor, target: Tensor) -> Tensor:
        return tf.shape(source)[1] + tf.shape(target)[1]


def readable(ids: Tensor, vocab_size: int, max_length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the rows of int32 ids (B, S) that a model can read: at most `max_length` tokens, all of
    its vocabulary.

    Returns:
        int32 lengths (B,); bool (B, 1), which rows can be read; and the ids, int32 (B, 1 to
        max_length), all padding where they cannot.
    """
    # onnxruntime fails on rows of nothing.
    ids = tf.pad(ids, [[0, 0], [0, tf.cast(tf.equal(tf.shape(ids)[1], 0), tf.int32)]])
    lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
    known = tf.reduce_all((ids >= 0) & (ids < vocab_size), axis=1)
    fits = (known & (lengths <= max_length))[:, None]
    return lengths, fits, tf.where(fits, ids, PAD_ID)[:, :max_length]


def vector(texts: Tensor) -> Tensor:
    """Refuse anything but one list of texts: TensorFlow does not check ranks when a SavedModel is
    called.
    """
    return tf.ensure_shape(texts, [None])


def _possible(limits: Limits) -> Limits:
    """Return limits that a search supports: from 1 to `beam_size` hypotheses."""
    beam_size = tf.maximum(limits.beam_size, 1)
    return limits._replace(
        beam_size=beam_size, n_best=tf.minimum(tf.maximum(limits.n_best, 1), beam_size)
    )


def _filled(found: Hypotheses, n_best: Tensor) -> Hypotheses:
    """Add blank hypotheses up to n_best."""
    missing = [0, n_best - tf.shape(found.scores)[1]]
    ids = tf.pad(found.ids, [[0, 0], missing, [0, 0]], constant_values=PAD_ID)
    return Hypotheses(ids, tf.pad(found.scores, [[0, 0], missing], constant_values=IMPOSSIBLE))


def _known(ids: Tensor | None, vocab_size: int) -> Tensor:
    """Return which rows of ids (B, T) have only tokens of the vocabulary: bool (B, 1); all rows if
    ids is None.
    """
    if ids is None:
        return True
    ids = tf.pad(ids, [[0, 0], [0, 1]])  # onnxruntime's ReduceAll over nothing is false
    return tf.reduce_all((ids >= 0) & (ids < vocab_size), axis=1, keepdims=True)


def _prefix_of_each(prefix: Tensor | None, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return the prefix (B, P) of each row, without end tokens and excess padding, and its length
    (B,).
    """
    if prefix is None:
        return tf.zeros([batch, 0], tf.int32), tf.zeros([batch], tf.int32)
    prefix = without_end(prefix)
    given = tf.pad(count_tokens(prefix), [[1, 0]])  # onnxruntime has no maximum of nothing
    prefix = prefix[:, : tf.reduce_max(given)]
    return tf.broadcast_to(prefix, [batch, tf.shape(prefix)[1]]), tf.broadcast_to(
        given[1:], [batch]
    )


def _widen(values: Tensor, lengths: Sequence[Tensor]) -> Tensor:
    """Pad the last axes of values to `lengths` with zeros."""
    missing = [
        length - tf.shape(values)[axis - len(lengths)] for axis, length in enumerate(lengths)
    ]
    return tf.pad(
        values,
        [*[[0, 0]] * (values.shape.rank - len(lengths)), *([0, number] for number in missing)],
    )


def _shift_left(ids: Tensor, places: Tensor) -> Tensor:
    """Drop the first `places` (B,) tokens of every row of ids (B, n, T); padding comes in from the
    right.
    """
    length = tf.shape(ids)[2]
    wanted = tf.range(length)[None, :] + places[:, None]  # (B, T)
    # (B, T, n)
    by_time = tf.gather(tf.transpose(ids, [0, 2, 1]), tf.minimum(wanted, length - 1), batch_dims=1)
    return tf.transpose(tf.where((wanted < length)[:, :, None], by_time, PAD_ID), [0, 2, 1])
