"""TensorFlow functions of models, over ids and over texts, which runtimes run and exports contain.

A text that cannot be read does not affect the other rows of its batch. A blank text has an empty
result. A text of more than `max_length` tokens, or with ids outside the vocabulary, is not cut: its
result is empty, with NaN for numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import END_ID, PAD_ID, START_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.losses import real_tokens
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.token_model import TokenModel, mean_log_probs
from tfk_transformer.search.beam_search import BeamSearch
from tfk_transformer.search.next_token import NEG_INF
from tfk_transformer.search.search_state import Hypotheses, Limits
from tfk_transformer.search.vocabulary import VocabularyBlocks, find_candidates
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer


class Scores(NamedTuple):
    """The scores of the target ids (B, T) of pairs."""

    token_log_probs: Tensor  # float32 (B, T)
    # float32 (B, L, H, T, S): the attention of each prediction, in the decoder's layers and heads.
    attention: Tensor

    @property
    def log_probability(self) -> Tensor:
        """The log-probability of each row, float32 (B,)."""
        return tf.reduce_sum(self.token_log_probs, axis=-1)


class TranslationFunctions:
    """Search and scoring over ids, and over strings with the tokenizers inside.

    A blank source has the score 0. A `beam_size` or `n_best` below 1 counts as 1, and hypotheses
    beyond `beam_size` are blank with a score of -1e9.

    Args:
        model: a built model; its weights are read at run time.
        source_tokenizer, target_tokenizer: the tokenizers of the texts and of the translations.
        shortlist: the tokens that a search may choose. Defaults to None: all. Scoring and prefixes
            use the whole vocabulary.
        vocabulary: the target vocabulary. Defaults to None: its size is in the configuration.
        use_cache: whether a step computes only the last position, not all positions again.
        search: the model's own defaults of search settings by name. Defaults to None: none.
        has_greedy_loop: see `BeamSearch`. Defaults to False.
    """

    def __init__(
        self,
        model: TokenModel,
        source_tokenizer: SubwordTokenizer,
        target_tokenizer: SubwordTokenizer,
        shortlist: Shortlist | None = None,
        vocabulary: VocabularyBlocks | None = None,
        use_cache: bool = True,
        search: Mapping[str, Any] | None = None,
        has_greedy_loop: bool = False,
    ) -> None:
        self.model = model
        self.shortlist = shortlist
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.vocabulary = vocabulary or VocabularyBlocks.of(model.config.target_vocab_size)
        self.use_cache = use_cache
        self.search = search or {}
        self.has_greedy_loop = has_greedy_loop

    def generate(self, source: Tensor, limits: Limits, prefix: Tensor | None = None) -> Hypotheses:
        """Translate ids (B, S), tokens and end token, padded, to ids (B, n_best, T) and scores.

        The prefix (B, P), or (1, P) for all sources, has the forced first tokens, padded; an end
        token counts as padding. The ids returned include it, but neither the score nor the length
        limits do. The limits are tensors or numbers, see `SearchSettings.as_numbers`.
        """
        config = self.model.config
        lengths, fits, ids = _readable_rows(source, config.source_vocab_size, config.max_length)
        beam_size = tf.maximum(limits.beam_size, 1)
        n_best = tf.minimum(tf.maximum(limits.n_best, 1), beam_size)
        clipped = limits._replace(beam_size=beam_size, n_best=n_best)
        fits &= _in_vocabulary(prefix, config.target_vocab_size)
        prefix, prefix_lengths = _broadcast_prefix(prefix, tf.shape(source)[0])
        max_new_tokens = self._max_new_tokens(ids)
        fits &= (prefix_lengths < max_new_tokens)[:, None]
        max_lengths = tf.minimum(clipped.max_lengths(lengths) + prefix_lengths, max_new_tokens)
        prefix = tf.where(fits, prefix, PAD_ID)
        target_ids, scores = self._search(ids, max_lengths, clipped, prefix)
        missing = [0, tf.maximum(limits.n_best, 1) - tf.shape(scores)[1]]
        target_ids = tf.pad(target_ids, [[0, 0], missing, [0, 0]], constant_values=PAD_ID)
        scores = tf.pad(scores, [[0, 0], missing], constant_values=NEG_INF)
        translated = fits & (lengths > 1)[:, None]
        empty = tf.where(fits, 0.0, float("nan"))  # (B, 1)
        return Hypotheses(
            tf.where(translated[:, :, None], target_ids, PAD_ID),
            tf.where(translated, scores, empty),
        )

    def translate(
        self, texts: Tensor, limits: Limits, prefix: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Translate string texts (B,) to string texts (B, n_best) with float32 scores (B, n_best).

        Each translation begins with the text of `prefix`, string (B,) or (1,), "" for no prefix.
        """
        source = encode_texts(self.source_tokenizer, texts)
        if prefix is not None:
            prefix = encode_texts(self.target_tokenizer, prefix)
        ids, scores = self.generate(source, limits, prefix)
        ids = tf.reshape(ids, [tf.size(scores), tf.shape(ids)[2]])  # (B*n_best, T)
        return tf.reshape(self.target_tokenizer.graph_decode(ids), tf.shape(scores)), scores

    def score_ids(self, source: Tensor, target: Tensor) -> Scores:
        """Score target ids (B, T), tokens and end token, given source ids (B, S).

        Scores at padding are 0. Where a side is longer than `max_length` or has ids outside its
        vocabulary, the whole row is NaN.
        """
        config = self.model.config
        _, fits, ids = _readable_rows(source, config.source_vocab_size, config.max_length)
        fits = (
            fits
            & (count_tokens(target) <= self._max_new_tokens(ids))[:, None]
            & _in_vocabulary(target, config.target_vocab_size)
        )
        weights = tf.where(fits, real_tokens(target), float("nan"))
        length = tf.shape(target)[1]
        readable = tf.where(fits, target, PAD_ID)[:, : config.max_length]
        decoded, attention = self._decode(ids, readable)
        # Not ReduceLogSumExp, which is many times slower in onnxruntime.
        log_probs = mean_log_probs(self.model.logits(decoded))
        log_probs = tf.gather(log_probs, readable, batch_dims=2)
        attention = _pad_to(attention, [length, self._attended_length(source, target)])
        return Scores(
            _pad_to(log_probs, [length]) * weights, attention * weights[:, None, None, :, None]
        )

    def _decode(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the decoder's outputs that predict the target (B, T), and their attention.

        They come from one full masked pass. Outputs are (B, T, D), attention is (B, L, H, T, S).
        """
        inputs = {"source": source, "target": _after_start(target)}
        decoded = self.model.decode(inputs, training=False)
        return decoded.output, tf.stack(decoded.cross_weights, axis=1)

    def _attended_length(self, source: Tensor, target: Tensor) -> Tensor:
        """Return S, the number of tokens that each token attends to."""
        return tf.shape(source)[1]

    def _source_mask(self, source: Tensor) -> Tensor:
        """Return the tokens that a coverage penalty counts, bool (B, S), False for padding."""
        return tf.not_equal(source, PAD_ID)

    def _max_new_tokens(self, source: Tensor) -> Tensor:
        """Return the number of tokens (B,) that may follow each source (B, S)."""
        return tf.fill([tf.shape(source)[0]], self.model.config.max_length)

    def _search(
        self,
        source: Tensor,
        max_lengths: Tensor,
        limits: Limits,
        prefix: Tensor,
    ) -> Hypotheses:
        """Search for ids with the prefix; see `BeamSearch.run`."""
        source_mask = self._source_mask(source)
        candidates = None if self.shortlist is None else find_candidates(self.shortlist, source)
        tokens = None if candidates is None else candidates.tokens
        step, first_cache, memory = self.model.start_search(source, self.use_cache, tokens)
        cache = first_cache(tf.size(max_lengths))
        search = BeamSearch(step, limits, self.vocabulary, candidates, self.has_greedy_loop)
        return search.run(cache, memory, source_mask, max_lengths, prefix)


class ContinuationFunctions(TranslationFunctions):
    """The functions of a decoder-only model: its translations continue the sources, its prompts.

    A prompt and its continuation together have at most `max_length` tokens.
    """

    def _source_mask(self, source: Tensor) -> Tensor:
        return tf.zeros([tf.shape(source)[0], 0], tf.bool)

    def _max_new_tokens(self, source: Tensor) -> Tensor:
        return self.model.config.max_length - count_tokens(without_end(source))

    def _search(
        self,
        source: Tensor,
        max_lengths: Tensor,
        limits: Limits,
        prefix: Tensor,
    ) -> Hypotheses:
        prompts = without_end(source)
        prompt_lengths = count_tokens(prompts)
        max_lengths += prompt_lengths
        hypotheses = super()._search(source, max_lengths, limits, join(prompts, prefix))
        return hypotheses._replace(ids=_shift_left(hypotheses.ids, prompt_lengths))

    def _decode(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        # Attention is to P + T tokens: the start token, the prompt, and the target without its last
        # token, with no padding between them.
        prompt = without_end(source)
        rows = _after_start(join(prompt, target))[:, : self.model.config.max_length]  # (B, P+T)
        decoded = self.model.decode(rows, training=False)
        # The output at the prompt's last token predicts the target's first token.
        positions = count_tokens(prompt)[:, None] + tf.range(tf.shape(target)[1])
        positions = tf.minimum(positions, tf.shape(rows)[1] - 1)  # (B, T)
        # (B, P+T, L, H, P+T)
        attention = tf.transpose(tf.stack(decoded.self_weights, axis=1), [0, 3, 1, 2, 4])
        attention = tf.gather(attention, positions, batch_dims=1)
        attention = tf.transpose(attention, [0, 2, 3, 1, 4])  # (B, L, H, T, P+T)
        return tf.gather(decoded.output, positions, batch_dims=1), attention

    def _attended_length(self, source: Tensor, target: Tensor) -> Tensor:
        return tf.shape(source)[1] + tf.shape(target)[1]


class ClassificationFunctions:
    """Classification of ids, and of strings with the tokenizer inside.

    The probabilities of all classes of a blank text are 0. The labels are in the model's order.
    """

    def __init__(
        self, model: EncoderClassifier, tokenizer: SubwordTokenizer, labels: Sequence[str]
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.labels = labels

    def probabilities(self, source: Tensor) -> Tensor:
        """Return float32 probabilities (B, C) of int32 ids (B, S): tokens and end token, padded."""
        config = self.model.config
        lengths, fits, ids = _readable_rows(source, config.vocab_size, config.max_length)
        logits = self.model(ids, training=False)
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))
        probabilities = tf.where((lengths > 1)[:, None], probabilities, 0.0)  # blank texts
        return tf.where(fits, probabilities, float("nan"))

    def classify(self, text: Tensor) -> dict[str, Tensor]:
        """Return `label` (B,), its `probability` (B,), and `probabilities` (B, C) of texts (B,)."""
        probabilities = self.probabilities(encode_texts(self.tokenizer, text))
        best = tf.argmax(probabilities, axis=1, output_type=tf.int32)  # (B,)
        probability = tf.gather(probabilities, best, batch_dims=1)
        index = tf.where(probability > 0.0, best + 1, 0)
        label = tf.gather(tf.constant(["", *self.labels]), index)
        return {"label": label, "probability": probability, "probabilities": probabilities}


def encode_texts(tokenizer: SubwordTokenizer, texts: Tensor) -> Tensor:
    """Return the ids (B, S) of string texts (B,), tokens and end token, padded.

    TensorFlow does not check the rank when it calls a SavedModel.
    """
    return tokenizer.graph_encode(tf.ensure_shape(texts, [None]))


def _readable_rows(ids: Tensor, vocab_size: int, max_length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the rows of int32 ids (B, S) with at most `max_length` tokens, all in the vocabulary.

    Returns lengths (B,); bool (B, 1), whether a row can be read; and the ids, (B, 1 to max_length),
    with padding for the other rows.
    """
    # onnxruntime fails on rows without columns.
    ids = tf.pad(ids, [[0, 0], [0, tf.cast(tf.equal(tf.shape(ids)[1], 0), tf.int32)]])
    lengths = count_tokens(ids)
    fits = _in_vocabulary(ids, vocab_size) & (lengths <= max_length)[:, None]
    return lengths, fits, tf.where(fits, ids, PAD_ID)[:, :max_length]


def _in_vocabulary(ids: Tensor | None, vocab_size: int) -> Tensor:
    """Return whether all ids of each row (B, T) are in the vocabulary: bool (B, 1), or True."""
    if ids is None:
        return True
    ids = tf.pad(ids, [[0, 0], [0, 1]])  # onnxruntime has no minimum of an empty axis
    lowest, highest = (
        reduce(ids, axis=1, keepdims=True) for reduce in (tf.reduce_min, tf.reduce_max)
    )
    return (lowest >= 0) & (highest < vocab_size)


def _broadcast_prefix(prefix: Tensor | None, batch_size: Tensor) -> tuple[Tensor, Tensor]:
    """Return prefixes (B, P) without end tokens and needless padding, and their lengths (B,)."""
    if prefix is None:
        return tf.zeros([batch_size, 0], tf.int32), tf.zeros([batch_size], tf.int32)
    prefix = without_end(prefix)
    lengths = tf.pad(count_tokens(prefix), [[1, 0]])  # onnxruntime has no maximum of an empty axis
    prefix = prefix[:, : tf.reduce_max(lengths)]
    prefix = tf.broadcast_to(prefix, [batch_size, tf.shape(prefix)[1]])
    return prefix, tf.broadcast_to(lengths[1:], [batch_size])


def _pad_to(values: Tensor, lengths: Sequence[Tensor]) -> Tensor:
    """Pad the last axes of values to `lengths` with zeros."""
    missing = [
        [0, length - tf.shape(values)[axis]] for axis, length in enumerate(lengths, -len(lengths))
    ]
    return tf.pad(values, [*[[0, 0]] * (values.shape.rank - len(lengths)), *missing])


def _shift_left(ids: Tensor, counts: Tensor) -> Tensor:
    """Drop the first `counts` (B,) tokens of every row of ids (B, n, T), and pad at the end."""
    length = tf.shape(ids)[2]
    columns = tf.range(length)[None, :] + counts[:, None]  # (B, T)
    ids = tf.transpose(ids, [0, 2, 1])  # (B, T, n)
    ids = tf.gather(ids, tf.minimum(columns, length - 1), batch_dims=1)
    ids = tf.where((columns < length)[:, :, None], ids, PAD_ID)
    return tf.transpose(ids, [0, 2, 1])


def _after_start(ids: Tensor) -> Tensor:
    """Shift ids (B, T) right by one and put the start token first."""
    return tf.concat([tf.fill([tf.shape(ids)[0], 1], START_ID), ids], axis=1)[:, :-1]


def count_tokens(ids: Tensor) -> Tensor:
    """Return the number of tokens (B,) in ids (B, T)."""
    # tf2onnx converts `count_nonzero` to more operators.
    return tf.reduce_sum(tf.cast(tf.not_equal(ids, PAD_ID), tf.int32), axis=1)


def without_end(ids: Tensor) -> Tensor:
    """Return ids with padding for the end token."""
    return tf.where(tf.equal(ids, END_ID), PAD_ID, ids)


def join(first: Tensor, second: Tensor) -> Tensor:
    """Join the tokens of (B, S) and the tokens of (B, T) to rows (B, S+T), padded at the end."""
    length = tf.shape(first)[1]
    total = tf.shape(first)[1] + tf.shape(second)[1]
    first_lengths = count_tokens(first)[:, None]
    columns = tf.range(total)[None, :]
    # The last column is padding.
    both = tf.pad(tf.concat([first, second], axis=1), [[0, 0], [0, 1]])
    after_first = tf.minimum(columns - first_lengths + length, total)
    columns = tf.where(columns < first_lengths, columns, after_first)
    return tf.gather(both, columns, batch_dims=1)
