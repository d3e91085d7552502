"""Tokens that a model puts before every source and every target: the language tokens of
multilingual models.

Whoever calls the model gives and gets rows without them. The first decoding step decodes the
target's prefix together with the start token. P is the number of tokens of a prefix.
"""

from collections.abc import Sequence
from typing import NamedTuple

from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.layers.masks import HIDDEN, causal_mask


class Arrivals(NamedTuple):
    """The tokens that a decoding step reads: in the first step the prefix (N = P + M), later only
    the last tokens (N = M).
    """

    tokens: Tensor  # ids (B, N)
    positions: Tensor  # (N,)
    lineage: Tensor  # additive mask (B or 1, 1, N, P+(t+1)*M)


def prefixed(prefix: Sequence[int], ids: Tensor) -> Tensor:
    """Put a prefix before ids (B, T): (B, P+T)."""
    return _before(prefix, ids) if prefix else ids


def prefixed_mask(prefix: Sequence[int], mask: Tensor) -> Tensor:
    """Put visible places before an additive mask (…, S): (…, P+S)."""
    return (
        ops.concatenate([*[ops.zeros_like(mask[..., :1])] * len(prefix), mask], axis=-1)
        if prefix
        else mask
    )


def arrivals(
    prefix: Sequence[int], tokens: Tensor, position: Tensor, lineage: Tensor = None
) -> Arrivals:
    """Return what a decoding step reads of a model with a prefix.

    Args:
        prefix: the ids of the prefix; at least one.
        tokens: ids (B, M), the last token of each beam.
        position: t, the position of these tokens, a scalar. The start token has position 0.
        lineage: additive mask (B, 1, M, (t+1)*M); None is right for M = 1.
    """
    beams, given = ops.shape(tokens)[1], len(prefix)
    new = ops.where(ops.equal(position, 0), given, 0)  # prefix tokens that this step reads
    own = ops.zeros((1, 1, 1, position + 1)) if lineage is None else lineage
    columns, rows = ops.shape(own)[3], ops.shape(own)[0]
    earlier = causal_mask(given)[:, :, :new]  # (1, 1, N - M, P)
    hidden = ops.full((rows, 1, new, columns), HIDDEN, dtype="float32")
    earlier = ops.concatenate([ops.tile(earlier, (rows, 1, 1, 1)), hidden], axis=3)
    places = ops.concatenate(
        [ops.arange(given, dtype="int32")[:new], ops.zeros((beams,), "int32") + given + position],
        axis=0,
    )
    return Arrivals(
        ops.concatenate([_before(prefix, tokens)[:, :new], tokens], axis=1),
        places,
        ops.concatenate([earlier, prefixed_mask(prefix, own)], axis=2),
    )


def _before(prefix: Sequence[int], ids: Tensor) -> Tensor:
    # (B, P)
    rows = ops.zeros((ops.shape(ids)[0], 1), dtype=ids.dtype) + ops.convert_to_tensor(
        [list(prefix)], dtype=ids.dtype
    )
    return ops.concatenate([rows, ids], axis=1)
