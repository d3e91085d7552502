"""A shortlist: for each source token, the probable target tokens (arXiv:1412.2007)."""

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tfk_transformer.constants import PAD_ID, UNKNOWN_ID
from tfk_transformer.datasets.pairs import Pair
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

COMMON = 400  # target tokens that are candidates for every source: the most frequent ones
LIKELY = 16  # target tokens that are candidates for a source token
EM_ITERATIONS = 5
CHUNK_SIZE = 1024  # text pairs that are encoded together
MAX_TOKEN_PAIRS = 2**25  # 150,000 sentences of 15 tokens


class Shortlist(NamedTuple):
    """The candidates of each source token."""

    common: np.ndarray  # int32 (C,), candidates for every source, ascending, with special tokens
    # int32 (source_vocab_size, L), candidates for each source token, padded.
    likely: np.ndarray
    target_vocab_size: int
    sentences: int  # the number of text pairs in the training data

    @property
    def always(self) -> np.ndarray:
        """1 for the candidates of every source, else 0: float32 (target_vocab_size,)."""
        mask = np.zeros(self.target_vocab_size, "float32")
        mask[self.common] = 1.0
        return mask


def shortlist_metadata(shortlist: Shortlist | None) -> dict[str, dict[str, int]]:
    """Return the metadata of a shortlist, if any, in exported files."""
    if shortlist is None:
        return {}
    return {
        "shortlist": {
            "learned_from_pairs": shortlist.sentences,
            "for_every_text": len(shortlist.common),
            "for_a_source_token": shortlist.likely.shape[1],
        }
    }


def learn_shortlist(
    pairs: Iterable[Pair], source_tokenizer: SubwordTokenizer, target_tokenizer: SubwordTokenizer
) -> Shortlist:
    """Learn the candidates of each source token: the most probable target tokens.

    IBM Model 1 (Brown et al., 1993, https://aclanthology.org/J93-2003) gives the translation
    probabilities, without an empty word, since common target tokens are candidates for every
    source. The same piece in the target vocabulary is another candidate, since names and numbers
    are often copied. Reading stops after `MAX_TOKEN_PAIRS` pairs of a source and a target token.
    """
    encoded = _encode(pairs, source_tokenizer, target_tokenizer)
    codes, positions, frequency, sentences = _read(encoded, target_tokenizer.vocab_size)
    unique, index = np.unique(codes, return_inverse=True)
    del codes  # before further large arrays are made
    index = index.astype("int32")
    sources, targets = np.divmod(unique, len(frequency))
    probabilities = _probabilities(sources, index, positions)
    frequent = np.argsort(-frequency, kind="stable")[:COMMON]
    always = np.union1d(np.arange(UNKNOWN_ID + 1), frequent[frequency[frequent] > 0])
    selected = np.flatnonzero(~np.isin(targets, always))
    order = selected[np.lexsort((-probabilities[selected], sources[selected]))]
    sources, targets = sources[order], targets[order]
    rank = np.arange(len(sources)) - np.searchsorted(sources, sources)
    best = np.zeros((source_tokenizer.vocab_size, LIKELY), "int64")
    is_likely = rank < LIKELY
    best[sources[is_likely], rank[is_likely]] = targets[is_likely]
    # Control tokens have no text, and their copy is padding.
    ids = {piece: token for token, piece in enumerate(target_tokenizer.pieces()) if piece}
    copies = [ids.get(piece, PAD_ID) for piece in source_tokenizer.pieces()]
    return Shortlist(
        always.astype("int32"),
        np.column_stack([copies, best]).astype("int32"),
        len(frequency),
        sentences,
    )


def _read(
    pairs: Iterable[tuple[np.ndarray, np.ndarray]], target_size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return the pairs of a source token and a target token of the same text pair.

    They are codes, int64 (N,): source token * target_size + target token; the positions of their
    target tokens in all texts, int32 (N,); the number of occurrences of each target token, int64
    (target_size,); and the number of text pairs.
    """
    codes, positions = [], []
    frequency = np.zeros(target_size, "int64")
    num_pairs = num_targets = 0
    for source, target in pairs:
        codes.append((source[None, :] * target_size + target[:, None]).ravel())
        target_positions = np.arange(num_targets, num_targets + len(target), dtype="int32")
        positions.append(np.repeat(target_positions, len(source)))
        np.add.at(frequency, target, 1)
        num_pairs += len(codes[-1])
        num_targets += len(target)
        if num_pairs >= MAX_TOKEN_PAIRS:
            break
    if not codes:
        raise ValueError(
            "shortlist: expected text pairs to learn it from, got none; see docs/data.md."
        )
    return np.concatenate(codes), np.concatenate(positions), frequency, len(codes)


def _encode(
    pairs: Iterable[Pair], source_tokenizer: SubwordTokenizer, target_tokenizer: SubwordTokenizer
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the different source tokens and the target tokens of each pair."""
    rest = iter(pairs)
    while chunk := list(itertools.islice(rest, CHUNK_SIZE)):
        sources = source_tokenizer.encode([pair.source for pair in chunk])
        targets = target_tokenizer.encode([pair.target for pair in chunk])
        for source, target in zip(sources, targets, strict=True):
            yield np.unique(np.array(source, "int64")), np.array(target, "int64")


def _probabilities(sources: np.ndarray, index: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the translation probabilities of the unique pairs, whose source tokens are given."""
    probability = np.ones(len(sources))
    for _ in range(EM_ITERATIONS):
        weight = probability[index]
        share = weight / np.bincount(positions, weight)[positions]
        expected = np.bincount(index, share)
        probability = expected / np.bincount(sources, expected)[sources]
    return probability
