"""Count real tokens, padding and the FLOPs of a training step.

Only the matrix products that the model needs for real tokens count: not padding, dropout, norms,
softmax, the optimizer, or anything that an engine computes twice. A source token takes this number
of multiplications and additions,

    encoder layers * (4 D^2 + 2 D F) + decoder layers * 2 D^2

including its keys and values for the decoder, a target token

    decoder layers * (6 D^2 + 2 D F) + D V

and a pair of s source and t target tokens, for scores and weighted sums of attention,

    encoder layers * 2 D s^2 + decoder layers * (2 D t^2 + 2 D s t)

A causal mask does not reduce the count. Each multiplication with its addition is two FLOPs, and the
backward pass takes twice the forward pass: six FLOPs each, the "6 N" per token of a model of N
weights (arXiv:2001.08361, section 2.1).
"""

from collections.abc import Sequence

import numpy as np

from trainers.task import PAD_ID, Batch, Sizes

FLOPS = 6  # of a multiplication and an addition, forward and backward


def model_flops(sizes: Sizes, batches: Sequence[Batch]) -> int:
    """Return the FLOPs of a training step on each of the batches."""
    d, ff = sizes.model_dim, sizes.ff_dim
    encoder, decoder = sizes.encoder_layers, sizes.decoder_layers
    s = np.concatenate([_lengths(batch.source) for batch in batches])
    t = np.concatenate([_lengths(batch.labels) for batch in batches])
    source = encoder * (4 * d * d + 2 * d * ff) + decoder * 2 * d * d
    target = decoder * (6 * d * d + 2 * d * ff) + d * sizes.vocab_size
    attention = encoder * 2 * d * s * s + decoder * 2 * d * (t * t + s * t)
    return FLOPS * int(source * s.sum() + target * t.sum() + attention.sum())


def target_tokens(batches: Sequence[Batch]) -> int:
    """Return how many tokens are predicted, ends included and padding not."""
    return sum(int((batch.labels != PAD_ID).sum()) for batch in batches)


def padding_share(batches: Sequence[Batch]) -> float:
    """Return the share of padding in both sides of the batches."""
    sides = [ids for batch in batches for ids in (batch.source, batch.labels)]
    return 1 - sum(int((ids != PAD_ID).sum()) for ids in sides) / sum(ids.size for ids in sides)


def _lengths(ids):
    """Return the real tokens of each row (B, L), int64 (B,)."""
    return (ids != PAD_ID).sum(axis=1)
