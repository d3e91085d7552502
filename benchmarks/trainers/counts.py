"""Count real tokens, padding, and the FLOPs and the memory of a training step.

**Model FLOPs.** Only the matrix products that the model needs for the real tokens count: not
padding, dropout, norms, softmax, the optimizer, or anything that an engine computes twice. A source
token takes this number of multiplications and additions,

    encoder layers * (4 D^2 + 2 D F) + decoder layers * 2 D^2

including its keys and values for the decoder, a target token

    decoder layers * (6 D^2 + 2 D F) + D V

and a pair of s source and t target tokens, for scores and weighted sums of attention,

    encoder layers * 2 D s^2 + decoder layers * (2 D t^2 + 2 D s t)

A causal mask does not reduce the count. Each multiplication with its addition is two FLOPs, and the
backward pass takes twice the forward pass. This gives six FLOPs each, the "6 N" per token of a
model of N weights (arXiv:2001.08361, section 2.1).

**Memory.** What a compiled step must hold when the backward pass begins, without what it needs
beside that for a moment. For each weight

    16 bytes        weight, gradient and both moments of Adam in float32
     2 bytes        more for a copy in bfloat16

for each token of a batch, padding included, with c = 4 or 2 bytes for a number in the compute
dtype,

    encoder layer   c (6 D + 2 F + H S) + 4 (2 D + H S) + 2 D
    decoder layer   c (9 D + 2 F + H (T + S)) + 4 (3 D + H (T + S)) + 3 D
                    and 2 c D for each source token
    vocabulary      12 V for each target token

These are, in the order of the terms: inputs of the products and of the ReLU, and attention weights;
results of norms and of softmax in float32; and dropout's choices, a byte each. Of the logits there
are the logits, their softmax and their gradient.
"""

from collections.abc import Sequence

import numpy as np

from trainers.task import PAD_ID, Batch, Sizes

FLOPS = 6  # of a multiplication and an addition, forward and backward


def model_flops(sizes: Sizes, batches: Sequence[Batch]) -> int:
    """Return the FLOPs of a training step on each of the batches."""
    d, ff, encoder, decoder = (
        sizes.model_dim,
        sizes.ff_dim,
        sizes.encoder_layers,
        sizes.decoder_layers,
    )
    s = np.concatenate([_lengths(batch.source) for batch in batches])
    t = np.concatenate([_lengths(batch.labels) for batch in batches])
    source = encoder * (4 * d * d + 2 * d * ff) + decoder * 2 * d * d
    target = decoder * (6 * d * d + 2 * d * ff) + d * sizes.vocab_size
    attention = encoder * 2 * d * s * s + decoder * 2 * d * (t * t + s * t)
    return FLOPS * int(source * s.sum() + target * t.sum() + attention.sum())


def weights(sizes: Sizes) -> int:
    """Return the number of weights of the model; its feed-forward layers have biases."""
    d, ff, encoder, decoder = (
        sizes.model_dim,
        sizes.ff_dim,
        sizes.encoder_layers,
        sizes.decoder_layers,
    )
    norms = 2 * encoder + 3 * decoder + 2
    return (
        sizes.vocab_size * d
        + (4 * encoder + 8 * decoder) * d * d
        + (encoder + decoder) * (2 * d * ff + ff + d)
        + norms * 2 * d
    )


def training_bytes(sizes: Sizes, batch: Batch, dtype: str = "float32") -> int:
    """Return an estimate of the memory of a training step, without attention that never stores its
    scores.
    """
    d, ff, heads = sizes.model_dim, sizes.ff_dim, sizes.num_heads
    s, t, width = batch.source.shape[1], batch.labels.shape[1], 2 if dtype == "bfloat16" else 4
    source = sizes.encoder_layers * (
        width * (6 * d + 2 * ff + heads * s) + 4 * (2 * d + heads * s) + 2 * d
    )
    source += sizes.decoder_layers * width * 2 * d
    target = sizes.decoder_layers * (
        width * (9 * d + 2 * ff + heads * (t + s)) + 4 * (3 * d + heads * (t + s)) + 3 * d
    )
    target += 12 * sizes.vocab_size
    return (
        (16 + (2 if width == 2 else 0)) * weights(sizes)
        + batch.source.size * source
        + batch.labels.size * target
    )


def target_tokens(batches: Sequence[Batch]) -> int:
    """Return how many tokens are predicted, ends included and padding not."""
    return sum(int((batch.labels != PAD_ID).sum()) for batch in batches)


def padding_share(batches: Sequence[Batch], *sides: str) -> float:
    """Return the share of padding in some sides of the batches: of "source" and "labels" together
    if none is named.
    """
    arrays = [getattr(batch, side) for batch in batches for side in sides or ("source", "labels")]
    return 1 - sum(int((ids != PAD_ID).sum()) for ids in arrays) / sum(ids.size for ids in arrays)


def _lengths(ids):
    """Return the real tokens of each row (B, L), int64 (B,)."""
    return (ids != PAD_ID).sum(axis=1)
