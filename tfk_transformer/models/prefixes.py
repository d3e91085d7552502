"""Tokens that a model reads with every source and target, such as the language tokens of M2M100.

The inputs and outputs of the model do not contain these tokens. The encoder reads a source's suffix
first, so that it is at one place in rows of all lengths, but with positions after the source. The
first decoding step decodes the target's prefix together with the start token. P is the number of
tokens of a prefix, which includes the suffix of a source.
"""

from collections.abc import Sequence
from typing import NamedTuple

from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.layers.masks import HIDDEN, causal_mask


class StepInputs(NamedTuple):
    """The tokens that a decoding step reads.

    The first step also reads the prefix (N = P + M). Later steps read only the last tokens (N = M).
    """

    tokens: Tensor  # ids (B, N)
    positions: Tensor  # (N,)
    lineage: Tensor  # additive mask (B or 1, 1, N, P+(t+1)*M)


def prefixed(prefix: Sequence[int], ids: Tensor) -> Tensor:
    """Put a prefix before ids (B, T): (B, P+T)."""
    return _before(prefix, ids) if prefix else ids


def prefixed_mask(prefix: Sequence[int], mask: Tensor) -> Tensor:
    """Put visible positions before an additive mask (…, S): (…, P+S)."""
    if not prefix:
        return mask
    return ops.concatenate([*[ops.zeros_like(mask[..., :1])] * len(prefix), mask], axis=-1)


def positions_with_suffix(additions: Sequence[int], suffix: int, mask: Tensor) -> Tensor:
    """Return the positions of a source with its suffix and prefix, in the encoder's order.

    Args:
        additions: the ids of the suffix and the prefix.
        suffix: the number of tokens of the suffix.
        mask: additive mask (B, 1, 1, S) of the source, whose visible tokens are the first ones.

    Returns:
        int32 (B, P+S).
    """
    prefix = len(additions) - suffix
    lengths = prefix + ops.sum(ops.cast(ops.equal(mask[:, 0, 0], 0), "int32"), axis=1)  # (B,)
    after = lengths[:, None] + ops.arange(suffix, dtype="int32")
    others = ops.arange(prefix + ops.shape(mask)[-1], dtype="int32")
    others = ops.zeros_like(lengths)[:, None] + others
    return ops.concatenate([after, others], axis=1)


def step_inputs(
    prefix: Sequence[int], tokens: Tensor, position: Tensor, lineage: Tensor = None
) -> StepInputs:
    """Return the inputs of a decoding step of a model with a prefix.

    Args:
        prefix: the ids of the prefix; at least one.
        tokens: ids (B, M), the last token of each beam.
        position: t, the position of these tokens, a scalar. The start token has position 0.
        lineage: additive mask (B, 1, M, (t+1)*M). Defaults to None, which is correct for M = 1.
    """
    beams = ops.shape(tokens)[1]
    length = len(prefix)
    new = ops.where(ops.equal(position, 0), length, 0)  # prefix tokens that this step reads
    lineage = ops.zeros((1, 1, 1, position + 1)) if lineage is None else lineage
    columns = ops.shape(lineage)[3]
    rows = ops.shape(lineage)[0]
    prefix_mask = causal_mask(length)[:, :, :new]  # (1, 1, N - M, P)
    hidden = ops.full((rows, 1, new, columns), HIDDEN, dtype="float32")
    prefix_mask = ops.concatenate([ops.tile(prefix_mask, (rows, 1, 1, 1)), hidden], axis=3)
    positions = ops.concatenate(
        [ops.arange(length, dtype="int32")[:new], ops.zeros((beams,), "int32") + length + position],
        axis=0,
    )
    return StepInputs(
        ops.concatenate([_before(prefix, tokens)[:, :new], tokens], axis=1),
        positions,
        ops.concatenate([prefix_mask, prefixed_mask(prefix, lineage)], axis=2),
    )


def _before(prefix: Sequence[int], ids: Tensor) -> Tensor:
    # (B, P)
    rows = ops.zeros((ops.shape(ids)[0], 1), dtype=ids.dtype) + ops.convert_to_tensor(
        [list(prefix)], dtype=ids.dtype
    )
    return ops.concatenate([rows, ids], axis=1)
