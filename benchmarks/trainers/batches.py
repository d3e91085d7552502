"""The batches of a data set, as this project makes them."""

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from trainers.task import Batch

FIRST_PIECE = 4  # the ids before it are special tokens
LARGEST_LEARNED = 8000  # pieces; the vocabulary of a small corpus cannot be larger


@cache
def real_batches(spec: str, vocab_size: int, batch_tokens: int, max_length: int) -> list[Batch]:
    """Return an epoch of training pairs as `TokenBatches` gives them to `fit`.

    Args:
        spec: of the data.
        vocab_size: above 8,000, pieces are drawn at random from a vocabulary of this size.
        batch_tokens: of a batch and side, padding included.
        max_length: of a side, its end included.
    """
    from tfk_transformer.runtime_environment import load_tensorflow

    load_tensorflow()
    from tfk_transformer import datasets
    from tfk_transformer.data.batches import TokenBatches
    from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

    data = datasets.load(spec)
    texts = (text for pair in data.pairs("train") for text in (pair.source, pair.target))
    tokenizer = SubwordTokenizer.train(texts, min(vocab_size, LARGEST_LEARNED))
    sizes = {"batch_tokens": batch_tokens, "max_length": max_length}
    batches = TokenBatches(
        data, "train", tokenizer, tokenizer, **sizes, shuffle=True, few_shapes=False
    )
    found = [
        Batch(inputs["source"], inputs["target"], labels)
        for inputs, labels in batches.dataset().as_numpy_iterator()
    ]
    if vocab_size > LARGEST_LEARNED:
        found = [_with_random_pieces(batch, vocab_size, seed) for seed, batch in enumerate(found)]
    return found


def _with_random_pieces(batch: Batch, vocab_size: int, seed: int) -> Batch:
    draw = np.random.default_rng(seed)
    source, labels = (
        np.where(ids >= FIRST_PIECE, draw.integers(FIRST_PIECE, vocab_size, ids.shape), ids)
        for ids in (batch.source, batch.labels)
    )
    target = np.where(batch.target >= FIRST_PIECE, np.roll(labels, 1, axis=1), batch.target)
    return Batch(*(ids.astype("int32") for ids in (source, target, labels)))


def spread(batches: Iterable[Batch], count: int) -> Sequence[Batch]:
    """Choose batches that represent all: evenly spaced in order of their length, then mixed."""
    ordered = sorted(batches, key=lambda b: (b.labels.shape[1], int((b.labels != 0).sum())))
    count = min(count, len(ordered))
    places = np.linspace(0, len(ordered), count, endpoint=False) + len(ordered) / (2 * count)
    chosen = [ordered[int(place)] for place in places]
    return [chosen[i] for i in np.random.default_rng(0).permutation(len(chosen))]
