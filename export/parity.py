"""The same sentences through Keras, SavedModel and ONNX: no artefact leaves that does not agree."""

from typing import Any, TypeAlias

import numpy as np
import sacrebleu

from tfk_transformer.constants import END_ID, UNKNOWN_ID
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# Parity figures by name: what JSON can hold. It is Any since each format has figures of its own.
Figures: TypeAlias = dict[str, Any]

PROBES = 100
SCORE_TOLERANCE = 1e-3
PROBABILITY_TOLERANCE = 1e-4  # ten times what rounding makes of a large and confident model
# Least BLEU over characters of an int8 file's translations with the model's.
AGREEMENT = 90.0
SETTINGS = ({"beam_size": 1}, {})  # greedy, and the defaults


class ParityError(ValueError):
    """An artefact that does not agree with the model it was made from."""


def probe_texts(own: list[str], tokenizer: SubwordTokenizer) -> list[str]:
    """Return at least `PROBES` texts: one's own, and if these are too few, made ones of random pieces."""
    random = np.random.default_rng(0)
    missing = max(0, PROBES - len(own))
    made = [random.integers(UNKNOWN_ID + 1, tokenizer.vocab_size, size=random.integers(1, 9)) for _ in range(missing)]
    return own + [text or "?" for text in tokenizer.decode(made)]


def probe_ids(texts: list[str], tokenizer: SubwordTokenizer, max_length: int) -> np.ndarray:
    """Return int32 ids (N, S) of texts, tokens and end, padded; shortened to what the model reads."""
    rows = [[*ids[: max_length - 1], END_ID] for ids in tokenizer.encode(texts)]
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return ids


def check_ids(name: str, expected: tuple, got: tuple) -> float:
    """Compare (ids, scores) of an artefact, NaN for what is too long, with the model's; return the largest difference of a score.

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
            f"{name}: expected the model's translations of {len(ids)} probe sentences, got {different} with other ids "
            f"and scores up to {difference:.2g} apart (at most {SCORE_TOLERANCE:g} allowed); nothing was written."
        )
    return difference


def check_scores(name: str, expected, got) -> dict:
    """Compare token log-probabilities, their sums and attention of given pairs with the model's; return the largest differences.

    Raises:
        ParityError: if a score differs by more than `SCORE_TOLERANCE`, or a weight of attention by more than `PROBABILITY_TOLERANCE`.
    """
    tokens, sums, attention = map(_largest_difference, expected, got)
    if not (max(tokens, sums) <= SCORE_TOLERANCE and attention <= PROBABILITY_TOLERANCE):
        raise ParityError(
            f"{name}: expected the model's scores of {len(expected[1])} probe pairs, got token scores up to {tokens:.2g}, sums up to "
            f"{sums:.2g} (at most {SCORE_TOLERANCE:g} allowed) and attention up to {attention:.2g} apart (at most "
            f"{PROBABILITY_TOLERANCE:g} allowed); nothing was written."
        )
    return {"largest_token_score_difference": tokens, "largest_attention_difference": attention}


def check_tokens(name: str, expected: np.ndarray, got: np.ndarray) -> None:
    """Compare ids (N, T) with the model's; padding, wherever it stands, counts for nothing.

    Raises:
        ParityError: if any differ.
    """
    different = sum(list(row[row > 0]) != list(other[other > 0]) for row, other in zip(expected, got, strict=True))
    if different:
        raise ParityError(
            f"{name}: expected the model's translations of {len(expected)} probe sentences, got {different} with other ids; "
            "nothing was written."
        )


def agreement(expected: list[str], got: list[str]) -> float:
    """Return the BLEU over characters of translations, with those of the model in the place of references.

    Over words it is 0 where translations have fewer than four.
    """
    return sacrebleu.corpus_bleu(got, [expected], tokenize="char").score


def check_rows(name: str, what: str, texts: list[str], expected: list[str], got: list[str]) -> None:
    """Compare what becomes of texts.

    Raises:
        ParityError: if any differs, naming the first.
    """
    different = [row for row in zip(texts, expected, got, strict=True) if row[1] != row[2]]
    if different:
        text, first, other = different[0]
        raise ParityError(
            f"{name}: expected the model's {what}, got {len(different)} of {len(expected)} that differ, "
            f"'{text}' for one: '{first}' became '{other}'; nothing was written."
        )


def check_probabilities(name: str, expected: np.ndarray, got: np.ndarray) -> float:
    """Compare probabilities, NaN for texts that are too long, with the model's; return the largest difference.

    Raises:
        ParityError: if one differs by more than `PROBABILITY_TOLERANCE`.
    """
    difference = _largest_difference(expected, got)
    if not difference <= PROBABILITY_TOLERANCE:
        raise ParityError(
            f"{name}: expected the model's probabilities of {len(expected)} probe texts, got some that are {difference:.2g} apart "
            f"(at most {PROBABILITY_TOLERANCE:g} allowed); nothing was written."
        )
    return difference


def _largest_difference(expected: np.ndarray, got: np.ndarray) -> float:
    """Return the largest difference of two arrays, where NaN differs from all but NaN."""
    both_nan = np.isnan(expected) & np.isnan(got)
    return float(np.max(np.where(both_nan, 0.0, np.abs(expected - got)), initial=0.0))
