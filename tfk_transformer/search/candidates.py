"""The tokens among which a search with a shortlist chooses, in TensorFlow."""

from typing import NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import PAD_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.layers.masks import HIDDEN
from tfk_transformer.search.top_k import VocabularyBlocks

CANDIDATE_BLOCK = 64  # divides the number of candidates, so that they can be searched by blocks


class Candidates(NamedTuple):
    """The tokens whose logits are computed for a batch.

    A mask selects the candidates of each sentence, so a translation does not depend on the other
    sentences of the batch.
    """

    # int32 (n,), ascending, starting with 0 to the end token; zeros fill the last block.
    tokens: Tensor
    # int32 (V,), the index of each token of the vocabulary in `tokens`; n if it is not a candidate.
    indices: Tensor
    # float32 (B, 1, n), additive: hides the candidates of other sentences and the filling zeros.
    mask: Tensor

    def blocks(self) -> VocabularyBlocks:
        """Return the blocks of the candidates."""
        return VocabularyBlocks(tf.size(self.tokens), CANDIDATE_BLOCK)

    def max_k(self) -> Tensor:
        """Return the maximum number of next tokens, int32 ().

        It is the number of candidates, or of all tokens if the vocabulary is smaller.
        """
        return tf.minimum(tf.size(self.tokens), tf.size(self.indices))

    def expand_logits(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Expand the candidates' logits (A, M, n) to the whole vocabulary, (A, M, V).

        Args:
            logits: for an ensemble, a list of logits.
            mask: the rows of `mask` of these A sentences.
        """

        def expand(part: Tensor) -> Tensor:
            padded = tf.pad(
                tf.cast(part, tf.float32) + mask,
                [[0, 0], [0, 0], [0, 1]],
                constant_values=HIDDEN,
            )
            return tf.gather(padded, self.indices, axis=2)

        return tf.nest.map_structure(expand, logits)


def find_candidates(shortlist: Shortlist, source: Tensor) -> Candidates:
    """Return the candidates of source ids, int32 (B, S).

    Args:
        shortlist: a shortlist, or tensors with the names `likely` and `always`.
        source: the ids.
    """
    batch_size = tf.shape(source)[0]
    always = tf.convert_to_tensor(shortlist.always)
    likely = tf.gather(tf.convert_to_tensor(shortlist.likely), source)  # (B, S, L)
    likely = tf.reshape(likely, [batch_size, -1])  # (B, S*L)
    rows = tf.broadcast_to(tf.range(batch_size)[:, None], tf.shape(likely))
    selected = tf.tensor_scatter_nd_update(  # float32 (B, V), 1 for candidates
        tf.tile(always[None], [batch_size, 1]),
        tf.stack([rows, likely], axis=-1),
        tf.ones(tf.shape(likely)),
    )
    union = tf.cast(tf.where(tf.reduce_max(selected, axis=0) > 0)[:, 0], tf.int32)
    # Do not take the remainder of a negative number: tf2onnx 1.17 converts it to a remainder with
    # the sign of the number.
    filling = CANDIDATE_BLOCK - 1 - (tf.size(union) - 1) % CANDIDATE_BLOCK
    tokens = tf.pad(union, [[0, filling]], constant_values=PAD_ID)
    count = tf.size(tokens)
    indices = tf.range(tf.size(union))
    visible = (tf.gather(selected, tokens, axis=1) > 0) & (tf.range(count) < tf.size(union))
    indices = tf.tensor_scatter_nd_update(
        tf.fill([tf.size(always)], count),
        union[:, None],
        indices,
    )
    return Candidates(tokens, indices, tf.where(visible, 0.0, HIDDEN)[:, None, :])
