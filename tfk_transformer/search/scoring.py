"""Scoring of pairs in one full masked pass: log-probabilities of target tokens, and attention."""

from typing import NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import END_ID, PAD_ID, START_ID
from tfk_transformer.models.token_model import TokenModel, mean_log_probs


class Scores(NamedTuple):
    """The scores of the target ids (B, T) of pairs."""

    token_log_probs: Tensor  # float32 (B, T)
    # float32 (B, L, H, T, S): the attention of each prediction, in the decoder's layers and heads.
    attention: Tensor

    @property
    def log_probability(self) -> Tensor:
        """The log-probability of each row, float32 (B,)."""
        return tf.reduce_sum(self.token_log_probs, axis=-1)


def score_translations(model: TokenModel, source: Tensor, target: Tensor) -> Scores:
    """Score pairs of ids (B, S) and (B, T), tokens and end token; attention is cross-attention."""
    decoded = model.decode({"source": source, "target": _after_start(target)}, training=False)
    return _scores(model, decoded.output, tf.stack(decoded.cross_weights, axis=1), target)


def score_continuations(model: TokenModel, prompt: Tensor, target: Tensor) -> Scores:
    """Score continuations of prompts without end tokens (B, P); attention is self-attention.

    The attention is to P + T tokens: the start token, the prompt, and the target without its last
    token, with no padding between them.
    """
    rows = _after_start(join(prompt, target))[:, : model.config.max_length]  # (B, P+T)
    decoded = model.decode(rows, training=False)
    # The output at the prompt's last token predicts the target's first token.
    positions = count_tokens(prompt)[:, None] + tf.range(tf.shape(target)[1])
    positions = tf.minimum(positions, tf.shape(rows)[1] - 1)  # (B, T)
    # (B, P+T, L, H, P+T)
    attention = tf.transpose(tf.stack(decoded.self_weights, axis=1), [0, 3, 1, 2, 4])
    attention = tf.gather(attention, positions, batch_dims=1)
    attention = tf.transpose(attention, [0, 2, 3, 1, 4])  # (B, L, H, T, P+T)
    return _scores(model, tf.gather(decoded.output, positions, batch_dims=1), attention, target)


def _scores(model: TokenModel, decoded: Tensor, attention: Tensor, target: Tensor) -> Scores:
    """Score the target from the decoder's outputs (B, T, D) that predict it."""
    # Not ReduceLogSumExp, which is many times slower in onnxruntime.
    log_probs = mean_log_probs(model.logits(decoded))
    return Scores(tf.gather(log_probs, target, batch_dims=2), attention)


def _after_start(ids: Tensor) -> Tensor:
    """Shift ids (B, T) right by one and put the start token first."""
    return tf.concat([tf.fill([tf.shape(ids)[0], 1], START_ID), ids], axis=1)[:, :-1]


def count_tokens(ids: Tensor) -> Tensor:
    """Return the number of tokens (B,) in ids (B, T)."""
    return tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)


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
