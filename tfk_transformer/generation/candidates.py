"""The tokens that a search with a shortlist chooses from, in TensorFlow."""

from typing import NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import PAD_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.layers.masks import HIDDEN

# The number of candidates is a multiple of it, so that they can be searched by blocks.
CANDIDATE_BLOCK = 64


class Candidates(NamedTuple):
    """The tokens that the logits of a batch are computed for.

    Every sentence has its own among them, so that a translation does not depend on the other
    sentences of the batch.
    """

    # int32 (n,), ascending, the first ones from 0 to the end token; zeros fill the last block.
    tokens: Tensor
    # int32 (V,), the place in `tokens` of every token of the vocabulary, n for those that are not
    # candidates.
    places: Tensor
    # float32 (B, 1, n), additive: hides the candidates of other sentences, and what fills the last
    # block.
    hidden: Tensor

    def most(self) -> Tensor:
        """Return the greatest number of choices: the number of candidates, or of tokens of a
        smaller vocabulary, int32 ().
        """
        return tf.minimum(tf.size(self.tokens), tf.size(self.places))

    def of_vocabulary(self, logits: Tensor, hidden: Tensor) -> Tensor:
        """Return logits (A, M, V) of the whole vocabulary, given those of the candidates (A, M, n).

        Args:
            logits: of an ensemble, a list of them.
            hidden: `hidden` of these A sentences.
        """

        def spread(part: Tensor) -> Tensor:
            padded = tf.pad(
                tf.cast(part, tf.float32) + hidden, [[0, 0], [0, 0], [0, 1]], constant_values=HIDDEN
            )
            return tf.gather(padded, self.places, axis=2)

        return tf.nest.map_structure(spread, logits)


def find_candidates(shortlist: Shortlist, source: Tensor) -> Candidates:
    """Return the candidates of source ids, int32 (B, S).

    Args:
        shortlist: a shortlist, or tensors with the names `likely` and `always`.
        source: the ids.
    """
    batch, always = tf.shape(source)[0], tf.convert_to_tensor(shortlist.always)
    likely = tf.gather(tf.convert_to_tensor(shortlist.likely), source)  # (B, S, L)
    likely = tf.reshape(likely, [batch, -1])  # (B, S*L)
    rows = tf.broadcast_to(tf.range(batch)[:, None], tf.shape(likely))
    own = tf.tensor_scatter_nd_update(
        tf.tile(always[None], [batch, 1]),
        tf.stack([rows, likely], axis=-1),
        tf.ones(tf.shape(likely)),
    )
    found = tf.cast(tf.where(tf.reduce_max(own, axis=0) > 0)[:, 0], tf.int32)
    # Not the remainder of a negative number: tf2onnx 1.17 converts it to one that has the sign of
    # the number.
    tokens = tf.pad(
        found,
        [[0, CANDIDATE_BLOCK - 1 - (tf.size(found) - 1) % CANDIDATE_BLOCK]],
        constant_values=PAD_ID,
    )
    count, places = tf.size(tokens), tf.range(tf.size(found))
    visible = (tf.gather(own, tokens, axis=1) > 0) & (tf.range(count) < tf.size(found))
    places = tf.tensor_scatter_nd_update(tf.fill([tf.size(always)], count), found[:, None], places)
    return Candidates(tokens, places, tf.where(visible, 0.0, HIDDEN)[:, None, :])
