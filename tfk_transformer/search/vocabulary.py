"""The tokens that a search chooses from: the vocabulary, or the candidates of a shortlist."""

from typing import NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.constants import PAD_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.layers.masks import HIDDEN

BLOCK_SIZES = (64, 256)  # minimum and maximum length of the blocks that `top_k_by_blocks` searches
CANDIDATE_BLOCK = 64  # divides the number of candidates, so that they can be searched by blocks


class VocabularyBlocks(NamedTuple):
    """The size of a vocabulary and of its blocks; tensors in graphs for any vocabulary."""

    size: Tensor  # int ()
    block_size: Tensor | None  # int (): their length; None for no blocks
    tokens: Tensor = None  # int32 (size,): the tokens, if they are a selection; None: 0 to size - 1

    @classmethod
    def of(cls, size: int) -> "VocabularyBlocks":
        """Return a vocabulary of this size, with blocks if a block size divides it."""
        return cls(size, next((block for block in range(*BLOCK_SIZES) if size % block == 0), None))


def top_k_by_blocks(
    values: Tensor, vocabulary: VocabularyBlocks, beam_size: Tensor, k: Tensor, num_blocks: Tensor
) -> Tensor:
    """Return the k greatest of values (A, M, vocab_size), and their tokens: (A, M, k) each.

    The greatest values are in the blocks with the greatest maxima. Searching only `num_blocks`
    blocks is three times as fast. `beam_size` is M: the shape would be read at every step.
    """
    vocab_size, block_size, tokens = vocabulary
    if tokens is None:
        tokens = tf.range(vocab_size)
    if block_size is None:
        best, indices = top_k(tf.reshape(values, [-1, beam_size, vocab_size]), k)
        return best, tf.gather(tokens, indices)
    blocks = tf.reshape(values, [-1, beam_size, vocab_size // block_size, block_size])
    num_blocks = tf.minimum(num_blocks, vocab_size // block_size)
    _, block_ids = top_k(tf.reduce_max(blocks, axis=-1), num_blocks)  # (A, M, num_blocks)
    searched_shape = [-1, beam_size, num_blocks * block_size]
    searched = tf.reshape(tf.gather(blocks, block_ids, batch_dims=2), searched_shape)
    best, indices = top_k(searched, k)
    tokens = tf.gather(tf.reshape(tokens, [-1, block_size]), block_ids)
    return best, tf.gather(tf.reshape(tokens, searched_shape), indices, batch_dims=2)


def best_by_blocks(values: Tensor, vocabulary: VocabularyBlocks) -> Tensor:
    """Return the greatest of values (A, 1, vocab_size), and its token: (A, 1) each.

    This is `top_k_by_blocks` with k = 1 in fewer operators.
    """
    vocab_size, block_size, tokens = vocabulary
    if block_size is None:
        best, index = top_k(tf.reshape(values, [-1, vocab_size]), 1)
    else:
        blocks = tf.reshape(values, [-1, vocab_size // block_size, block_size])
        _, block_id = top_k(tf.reduce_max(blocks, axis=-1), 1)
        # Not `block_id[:, 0]`: ONNX's operator has this last axis, and `optimize` can keep it.
        best, index = top_k(tf.gather(blocks, tf.squeeze(block_id, -1), batch_dims=1), 1)
        index += block_id * tf.cast(block_size, tf.int64)
    return best, tf.cast(index, tf.int32) if tokens is None else tf.gather(tokens, index)


def top_k(values: Tensor, k: Tensor | int) -> Tensor:
    """Return the k greatest values of each row, in descending order, and their indices in int64.

    ONNX's operators return and take indices in int64.
    """
    return tf.math.top_k(values, k=k, index_type=tf.int64)


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
        return VocabularyBlocks(tf.size(self.tokens), CANDIDATE_BLOCK, self.tokens)

    def expand_logits(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Expand the candidates' logits (A, M, n), a list for an ensemble, to the whole vocabulary.

        `mask` has the rows of `Candidates.mask` of these A sentences.
        """

        def expand(part: Tensor) -> Tensor:
            masked = tf.cast(part, tf.float32) + mask
            padded = tf.pad(masked, [[0, 0], [0, 0], [0, 1]], constant_values=HIDDEN)
            return tf.gather(padded, self.indices, axis=2)

        return tf.nest.map_structure(expand, logits)


def find_candidates(shortlist: Shortlist, source: Tensor) -> Candidates:
    """Return the candidates of source ids (B, S), by a shortlist of arrays or of tensors."""
    batch_size = tf.shape(source)[0]
    always = tf.convert_to_tensor(shortlist.always)
    likely = tf.gather(tf.convert_to_tensor(shortlist.likely), source)  # (B, S, L)
    ones = tf.ones(tf.shape(likely))
    # float32 (V,), 1 for the candidates of any sentence.
    selected = tf.tensor_scatter_nd_update(always, likely[..., None], ones)
    union = tf.cast(tf.where(selected > 0)[:, 0], tf.int32)
    # Do not take the remainder of a negative number: tf2onnx 1.17 converts it to a remainder with
    # the sign of the number.
    filling = CANDIDATE_BLOCK - 1 - (tf.size(union) - 1) % CANDIDATE_BLOCK
    tokens = tf.pad(union, [[0, filling]], constant_values=PAD_ID)
    count = tf.size(tokens)
    indices = tf.tensor_scatter_nd_update(
        tf.fill([tf.size(always)], count), union[:, None], tf.range(tf.size(union))
    )
    rows = tf.broadcast_to(tf.range(batch_size)[:, None, None], tf.shape(likely))
    selected = tf.tensor_scatter_nd_update(  # float32 (B, n), 1 for the candidates of the sentence
        tf.tile(tf.gather(always, tokens)[None], [batch_size, 1]),
        tf.stack([rows, tf.gather(indices, likely)], axis=-1),
        ones,
    )
    visible = (selected > 0) & (tf.range(count) < tf.size(union))
    return Candidates(tokens, indices, tf.where(visible, 0.0, HIDDEN)[:, None, :])
