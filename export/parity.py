"""Compare an artifact's results on probe sentences with the Keras model's. No artifact is written
whose results differ.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import sacrebleu

from tfk_transformer.constants import END_ID, UNKNOWN_ID
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# Parity figures by name: values that JSON can hold. They are Any, since each format has other
# figures.
Figures: TypeAlias = dict[str, Any]
# int32 ids (N, n_best, T), float32 scores (N, n_best)
Searched: TypeAlias = tuple[np.ndarray, np.ndarray]

PROBES = 100  # the minimum number of probe sentences
SCORE_TOLERANCE = 1e-3
PROBABILITY_TOLERANCE = 1e-4  # ten times the rounding differences of a large and confident model
# The minimum BLEU over characters of an int8 file's translations, with the model's translations as
# references.
AGREEMENT = 90.0
# The minimum share of the sentences that another engine, with another order of sums, translates
# with the same tokens.
MIN_EQUAL_SHARE = 0.99
# Greedy search, and the defaults.
PROBE_SETTINGS: tuple[dict[str, int | float], ...] = ({"beam_size": 1}, {})


class ParityError(ValueError):
    """Raised when the results of an artifact differ from those of the model that was exported."""


def probe_texts(own: list[str], tokenizer: SubwordTokenizer) -> list[str]:
    """Return at least `PROBES` texts: the given ones and, if these are too few, texts of random
    pieces.
    """
    random = np.random.default_rng(0)
    missing = max(0, PROBES - len(own))
    made = [
        random.integers(UNKNOWN_ID + 1, tokenizer.vocab_size, size=random.integers(1, 9)).tolist()
        for _ in range(missing)
    ]
    return own + [text or "?" for text in tokenizer.decode(made)]


def probe_ids(texts: list[str], tokenizer: SubwordTokenizer, max_length: int) -> np.ndarray:
    """Return int32 ids (N, S) of texts: tokens and end token, padded. Longer texts are cut to
    `max_length` tokens.
    """
    rows = [[*ids[: max_length - 1], END_ID] for ids in tokenizer.encode(texts)]
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return ids


def compare_ids(name: str, expected: Searched, got: Searched) -> float:
    """Compare the ids and scores of an artifact with the model's. The score of a source that is too
    long is NaN.

    Returns:
        The largest difference of a score.

    Raises:
        ParityError: if any id differs, or a score by more than `SCORE_TOLERANCE`.
    """
    (ids, scores), (other_ids, other_scores) = expected, got
    if ids.shape == other_ids.shape:
        different = int(np.sum(np.any(ids != other_ids, axis=(1, 2))))
    else:
        different = len(ids)
    difference = _largest_difference(scores, other_scores)
    if different or not difference <= SCORE_TOLERANCE:
        raise ParityError(
            f"{name}: expected the model's translations of {len(ids)} probe sentences, got "
            f"{different} with other ids "
            f"and scores up to {difference:.2g} apart (at most {SCORE_TOLERANCE:g} allowed); "
            "nothing was written."
        )
    return difference


def check_scores(
    name: str, expected: Sequence[Sequence[np.ndarray]], got: Sequence[Sequence[np.ndarray]]
) -> Figures:
    """Compare the log-probabilities of tokens, their sums, and the attention weights of pairs of
    ids with the model's.

    Args:
        name: name of the artifact, for errors.
        expected: the model's three arrays for each batch of pairs.
        got: the artifact's.

    Returns:
        The largest differences.

    Raises:
        ParityError: if a log-probability differs by more than `SCORE_TOLERANCE`, or an attention
            weight by more than `PROBABILITY_TOLERANCE`.
    """
    by_batch = [
        [_largest_difference(*pair) for pair in zip(*batch, strict=True)]
        for batch in zip(expected, got, strict=True)
    ]
    tokens, sums, attention = np.max(by_batch, axis=0).tolist()  # NaN if one is
    if not (
        tokens <= SCORE_TOLERANCE and sums <= SCORE_TOLERANCE and attention <= PROBABILITY_TOLERANCE
    ):
        pairs = sum(len(batch[1]) for batch in expected)
        raise ParityError(
            f"{name}: expected the model's log-probabilities of {pairs} probe pairs, got those of "
            f"tokens up to {tokens:.2g}, "
            f"sums up to {sums:.2g} (at most {SCORE_TOLERANCE:g} allowed) and attention up to "
            f"{attention:.2g} apart (at most "
            f"{PROBABILITY_TOLERANCE:g} allowed); nothing was written."
        )
    return {"largest_token_score_difference": tokens, "largest_attention_difference": attention}


def check_numbers(name: str, what: str, expected: np.ndarray, got: np.ndarray) -> float:
    """Compare scores or log-probabilities of the probe translations with the model's.

    Args:
        name: name of the artifact, for errors.
        what: what the numbers are, such as "scores", for errors.
        expected: the model's numbers, a row for each translation.
        got: the artifact's.

    Returns:
        The largest difference.

    Raises:
        ParityError: if one differs by more than `SCORE_TOLERANCE`.
    """
    difference = _largest_difference(expected, got)
    if not difference <= SCORE_TOLERANCE:
        raise ParityError(
            f"{name}: expected the model's {what} of {len(expected)} probe translations, got some "
            "that are "
            f"{difference:.2g} apart (at most {SCORE_TOLERANCE:g} allowed); nothing was written."
        )
    return difference


def check_tokens(name: str, expected: np.ndarray, got: np.ndarray) -> None:
    """Compare ids (N, T) with the model's, without their padding.

    Raises:
        ParityError: if any differ.
    """
    different = sum(
        list(row[row > 0]) != list(other[other > 0])
        for row, other in zip(expected, got, strict=True)
    )
    if different:
        raise ParityError(
            f"{name}: expected the model's translations of {len(expected)} probe sentences, got "
            f"{different} with other ids; "
            "nothing was written."
        )


def check_share(name: str, search: str, same: Sequence[bool], difference: float) -> None:
    """Check how many translations of another engine are the model's, and how far their
    log-probabilities are apart.

    Args:
        name: name of the artifact, for errors.
        search: the kind of search, for errors.
        same: for each probe sentence, whether all tokens are the model's.
        difference: the largest difference of the log-probability of a translation that is the same.

    Raises:
        ParityError: if fewer than `MIN_EQUAL_SHARE` of the sentences are the same, or the
            difference is more
            than `SCORE_TOLERANCE`.
    """
    if sum(same) < MIN_EQUAL_SHARE * len(same) or not difference <= SCORE_TOLERANCE:
        raise ParityError(
            f"{name}: expected the model's translations of at least {MIN_EQUAL_SHARE:.0%} of "
            f"{len(same)} "
            f"probe sentences in {search}, got those of "
            f"{sum(same)}, with log-probabilities up to {difference:.2g} apart (at most "
            f"{SCORE_TOLERANCE:g} allowed); nothing was written."
        )


def agreement(expected: list[str], got: list[str]) -> float:
    """Return the BLEU over characters of translations, with those of the model as references.

    BLEU over words would be 0 for translations of fewer than four words.
    """
    return sacrebleu.corpus_bleu(got, [expected], tokenize="char").score


def compare_texts(
    name: str, what: str, texts: list[str], expected: list[str], got: list[str]
) -> None:
    """Compare the results for texts, such as "translations", with the model's.

    Raises:
        ParityError: if a result differs; the message has the first one.
    """
    different = [row for row in zip(texts, expected, got, strict=True) if row[1] != row[2]]
    if different:
        text, first, other = different[0]
        raise ParityError(
            f"{name}: expected the model's {what}, got {len(different)} of {len(expected)} that "
            "differ, "
            f"'{text}' for one: '{first}' became '{other}'; nothing was written."
        )


def check_probabilities(name: str, expected: np.ndarray, got: np.ndarray) -> float:
    """Compare probabilities with the model's. Those of a text that is too long are NaN.

    Returns:
        The largest difference.

    Raises:
        ParityError: if one differs by more than `PROBABILITY_TOLERANCE`.
    """
    difference = _largest_difference(expected, got)
    if not difference <= PROBABILITY_TOLERANCE:
        raise ParityError(
            f"{name}: expected the model's probabilities of {len(expected)} probe texts, got some "
            f"that are {difference:.2g} apart "
            f"(at most {PROBABILITY_TOLERANCE:g} allowed); nothing was written."
        )
    return difference


def _largest_difference(expected: np.ndarray, got: np.ndarray) -> float:
    """Return the largest absolute difference of two arrays. NaN equals only NaN."""
    both_nan = np.isnan(expected) & np.isnan(got)
    return float(np.max(np.where(both_nan, 0.0, np.abs(expected - got)), initial=0.0))
