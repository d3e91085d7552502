"""Which target tokens a source token may be translated to, learned from text pairs.

A search that only chooses among the candidates of its source multiplies by a small part of the
vocabulary (arXiv:1412.2007).
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tfk_transformer.constants import PAD_ID, UNKNOWN_ID
from tfk_transformer.datasets.pairs import Pair
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

COMMON = 400  # target tokens that are candidates for every source: the most frequent ones
LIKELY = 16  # target tokens that are candidates for a source token
ROUNDS = 5  # of expectation maximization
ENCODED_AT_ONCE = 1024
MAX_TOKEN_PAIRS = 2**25  # pairs of tokens that are read: 150,000 sentences of 15 tokens


class Shortlist(NamedTuple):
    """The candidates of each source token."""

    # int32 (C,), candidates for every source, in ascending order; with the special tokens.
    common: np.ndarray
    # int32 (source_vocab_size, L), candidates for a source token, padded; padding has none.
    likely: np.ndarray
    target_vocab_size: int
    sentences: int  # the number of text pairs that it was learned from

    @property
    def always(self) -> np.ndarray:
        """1 for the candidates of every source, else 0: float32 (target_vocab_size,)."""
        marks = np.zeros(self.target_vocab_size, "float32")
        marks[self.common] = 1.0
        return marks


def about_shortlist(shortlist: Shortlist | None) -> dict[str, dict[str, int]]:
    """Return what exported files tell about a shortlist: nothing if there is none."""
    if shortlist is None:
        return {}
    sizes = {
        "for_every_text": len(shortlist.common),
        "for_a_source_token": shortlist.likely.shape[1],
    }
    return {"shortlist": {"learned_from_pairs": shortlist.sentences, **sizes}}


class _Pairs(NamedTuple):
    """Which source tokens stand in the same text pair as each target token, of all text pairs."""

    kinds: np.ndarray  # int64 (K,), ascending: source token * target_vocab_size + target token
    kind: np.ndarray  # int32 (N,), the place in `kinds` of each pair of tokens
    target: np.ndarray  # int32 (N,), the number of the target token, counted through all texts
    frequency: np.ndarray  # int64 (target_vocab_size,), how often each target token occurs
    sentences: int


def learn_shortlist(
    pairs: Iterable[Pair],
    source_tokenizer: SubwordTokenizer,
    target_tokenizer: SubwordTokenizer,
    common: int = COMMON,
    likely: int = LIKELY,
    most: int = MAX_TOKEN_PAIRS,
) -> Shortlist:
    """Learn the candidates of each source token: the target tokens with the greatest probabilities
    of translation.

    The probabilities are those of IBM Model 1 (Brown et al., 1993,
    https://aclanthology.org/J93-2003), without the empty word: common target tokens are candidates
    for every source anyway. The same piece, if the target vocabulary has it, is another candidate:
    names and numbers are often copied.

    Args:
        pairs: text pairs like those that will be translated.
        source_tokenizer: the tokenizer of the sources.
        target_tokenizer: the tokenizer of the translations.
        common: the number of target tokens that are candidates for every source.
        likely: the number of candidates of a source token beside these.
        most: the number of pairs of a source and a target token after which no more text is read.

    Raises:
        ValueError: if there are no pairs.
    """
    found = _read(pairs, source_tokenizer, target_tokenizer, most)
    frequent = np.argsort(-found.frequency, kind="stable")[:common]
    always = np.union1d(np.arange(UNKNOWN_ID + 1), frequent[found.frequency[frequent] > 0])
    translations = _best(found, always, source_tokenizer.vocab_size, likely)
    copies = _copies(source_tokenizer, target_tokenizer)
    return Shortlist(
        always.astype("int32"),
        np.column_stack([copies, translations]).astype("int32"),
        target_tokenizer.vocab_size,
        found.sentences,
    )


def _read(
    pairs: Iterable[Pair],
    source_tokenizer: SubwordTokenizer,
    target_tokenizer: SubwordTokenizer,
    most: int,
) -> _Pairs:
    kinds, numbers, frequency = [], [], np.zeros(target_tokenizer.vocab_size, "int64")
    read, targets, sentences = 0, 0, 0
    for source, target in _encoded(pairs, source_tokenizer, target_tokenizer):
        kinds.append((source[None, :] * target_tokenizer.vocab_size + target[:, None]).ravel())
        numbers.append(
            np.repeat(np.arange(targets, targets + len(target), dtype="int32"), len(source))
        )
        np.add.at(frequency, target, 1)
        read, targets, sentences = read + len(kinds[-1]), targets + len(target), sentences + 1
        if read >= most:
            break
    if not sentences:
        raise ValueError(
            "shortlist: expected text pairs to learn it from, got none; see docs/data.md."
        )
    joined = np.concatenate(kinds), np.concatenate(numbers)
    del kinds, numbers  # before the largest arrays are made
    found, kind = np.unique(joined[0], return_inverse=True)
    return _Pairs(found, kind.astype("int32"), joined[1], frequency, sentences)


def _encoded(
    pairs: Iterable[Pair], source_tokenizer: SubwordTokenizer, target_tokenizer: SubwordTokenizer
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the source tokens of each pair, every one once, and its target tokens."""
    rest = iter(pairs)
    while some := list(itertools.islice(rest, ENCODED_AT_ONCE)):
        sources = source_tokenizer.encode([pair.source for pair in some])
        targets = target_tokenizer.encode([pair.target for pair in some])
        for source, target in zip(sources, targets, strict=True):
            yield np.unique(np.array(source, "int64")), np.array(target, "int64")


def _best(found: _Pairs, always: np.ndarray, source_vocab_size: int, likely: int) -> np.ndarray:
    """Return the most probable translations of each source token, int64 (source_vocab_size,
    likely), without those of `always`.
    """
    vocab_size = len(found.frequency)
    sources, targets = np.divmod(found.kinds, vocab_size)
    probabilities = _probabilities(found, sources, source_vocab_size)
    others = ~np.isin(targets, always)
    sources, targets, probabilities = sources[others], targets[others], probabilities[others]
    order = np.lexsort((-probabilities, sources))
    sources, targets = sources[order], targets[order]
    rank = np.arange(len(sources)) - np.searchsorted(sources, sources)
    best = np.zeros((source_vocab_size, likely), "int64")
    kept = rank < likely
    best[sources[kept], rank[kept]] = targets[kept]
    return best


def _probabilities(found: _Pairs, sources: np.ndarray, source_vocab_size: int) -> np.ndarray:
    """Return the probability of translating the source token of each kind to its target token,
    float64 (K,).
    """
    probability = np.ones(len(found.kinds))
    for _ in range(ROUNDS):
        weight = probability[found.kind]
        share = weight / np.bincount(found.target, weight)[found.target]
        expected = np.bincount(found.kind, share)
        probability = expected / np.bincount(sources, expected, source_vocab_size)[sources]
    return probability


def _copies(source_tokenizer: SubwordTokenizer, target_tokenizer: SubwordTokenizer) -> np.ndarray:
    """Return the target token of the same piece for each source token, int64 (source_vocab_size,);
    padding where there is none.
    """
    # Control tokens have no text.
    targets = {piece: token for token, piece in enumerate(target_tokenizer.pieces()) if piece}
    return np.array([targets.get(piece, PAD_ID) for piece in source_tokenizer.pieces()], "int64")
