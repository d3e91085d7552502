"""Compare an artifact's results on probe sentences with the Keras model's."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import UNKNOWN_ID
from tfk_transformer.inference.token_scoring import padded_ids
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# Parity figures by name: JSON values. They are Any, since each format has different figures.
Figures: TypeAlias = dict[str, Any]
Searched: TypeAlias = tuple[np.ndarray, np.ndarray]  # ids (N, n_best, T), scores (N, n_best)

PROBES = 100  # the minimum number of probe sentences
SCORE_TOLERANCE = 1e-3
PROBABILITY_TOLERANCE = 1e-4  # ten times the rounding differences of a large and confident model
# Attention to products of hundreds rounds more: a published PyTorch model, whose log-probabilities
# differ by 1e-5, has 1.4e-3.
ATTENTION_TOLERANCE = 1e-2
# The minimum share of sentences with the model's tokens, for engines that add in another order.
MIN_EQUAL_SHARE = 0.99
GREEDY = {"beam_size": 1, "n_best": 1}


class ParityError(ValueError):
    """Raised when the results of an artifact differ from the results of the exported model.

    Args:
        message: what differs.
        figures: the figures of the artifact. If other formats were written, these are the figures
            of the export, with the formats that were not written under "failed".
    """

    def __init__(self, message: str, figures: Figures | None = None):
        super().__init__(message)
        self.figures = figures or {}


class Int8Limits(NamedTuple):
    """The limits of `exporting.export` for 8-bit translations.

    Translations of captions with weights of 5 bits have a regret of 0.01 and the BLEU of float32;
    with weights of 4 bits, the regret is 0.04, and BLEU 1.3 lower.
    """

    regret: float = 0.01  # also the default of `export`, its package and its command
    same: float = 0.0

    def error(self, name: str, figures: Figures) -> ParityError | None:
        """Return the error for `ExpectedResults.int8_figures` of a format, if they exceed these."""
        regret, same = figures["regret_per_token"], figures["same_translations"]
        count = figures["sentences"]
        if regret <= self.regret and same >= self.same * count:
            return None
        least = f", and at least {self.same:.1%} of the translations the model's" * (self.same > 0)
        return ParityError(
            f"{name}: expected a regret (loss of score under the model) of at most {self.regret:g} "
            f"per token{least}, got {regret:.3g}, with the model's translation of {same} of "
            f"{count} probe sentences; export with probes like your texts, without this format, or "
            "with other limits (int8_regret, int8_same)",
            figures,
        )


def probe_settings(search: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of the probes' greedy search and beam search.

    `search` are the model's own defaults. If these are of greedy search, the beam search has the
    library's default beam size.
    """
    if not search:
        return {"beam_size": 1}, {}
    # Texts of random pieces often have endless translations.
    default = SearchSettings.max_length_factor
    factor = min(search.get("max_length_factor", default), default)
    beam = {**search, "max_length_factor": factor}
    greedy = {**beam, **GREEDY}
    if search.get("beam_size") == 1:
        beam["beam_size"] = SearchSettings.beam_size
    return greedy, beam


def probe_texts(texts: list[str], tokenizer: SubwordTokenizer) -> list[str]:
    """Return texts, followed by texts of random pieces if there are fewer than `PROBES` texts."""
    random = np.random.default_rng(0)
    text_ids = np.array(tokenizer.text_ids() or [UNKNOWN_ID])
    random_ids = [
        text_ids[random.integers(0, len(text_ids), size=random.integers(1, 9))].tolist()
        for _ in range(PROBES - len(texts))
    ]
    return texts + [text or "?" for text in tokenizer.decode(random_ids)]


def probe_ids(texts: list[str], tokenizer: SubwordTokenizer, max_length: int) -> np.ndarray:
    """Return int32 ids (N, S) of texts: up to `max_length` tokens with the end token, padded."""
    return padded_ids([ids[: max_length - 1] for ids in tokenizer.encode(texts)])


def compare_ids(name: str, expected: Searched, got: Searched) -> float:
    """Compare an artifact's ids and scores; return the largest difference between scores."""
    (ids, scores), (got_ids, got_scores) = expected, got
    same_shape = ids.shape == got_ids.shape
    different = len(different_rows(ids, got_ids)) if same_shape else len(ids)
    difference = _largest_difference(scores, got_scores)
    if different or not difference <= SCORE_TOLERANCE:
        raise ParityError(
            f"{name}: expected the model's translations of {len(ids)} probe sentences, got "
            f"{different} with different ids, and scores that differ by up to {difference:.2g} "
            f"(at most {SCORE_TOLERANCE:g} allowed)"
        )
    return difference


def pad_to_longest(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Pad arrays of ids (N, n_best, T) to the largest T."""
    longest = max(part.shape[2] for part in parts)
    return [np.pad(part, [(0, 0), (0, 0), (0, longest - part.shape[2])]) for part in parts]


def different_rows(ids: np.ndarray, other_ids: np.ndarray) -> np.ndarray:
    """Return the indices of the rows in which ids (N, n_best, T) differ, without their padding."""
    if ids.shape[:2] != other_ids.shape[:2]:
        return np.arange(len(ids))
    padded, other_padded = pad_to_longest([ids, other_ids])
    return np.flatnonzero(np.any(padded != other_padded, axis=(1, 2)))


def scores_agree(scores: np.ndarray, other_scores: np.ndarray) -> bool:
    """Return whether scores have one shape and differ by at most `SCORE_TOLERANCE`."""
    return (
        scores.shape == other_scores.shape
        and _largest_difference(scores, other_scores) <= SCORE_TOLERANCE
    )


def without_rows(searched: Searched, rows: Sequence[int]) -> Searched:
    """Return the results of a search without rows, and without padding that only they need."""
    if not rows:
        return searched
    ids, scores = (np.delete(part, rows, axis=0) for part in searched)
    longest = np.count_nonzero(ids, axis=2).max(initial=0)
    return ids[:, :, :longest], scores


def check_scores(
    name: str, expected: Sequence[Sequence[np.ndarray]], got: Sequence[Sequence[np.ndarray]]
) -> Figures:
    """Compare batches of log-probabilities of tokens, their sums, and attention weights."""
    by_batch = [
        [_largest_difference(*pair) for pair in zip(*batch, strict=True)]
        for batch in zip(expected, got, strict=True)
    ]
    tokens, sums, attention = np.max(by_batch, axis=0).tolist()  # NaN if a difference is
    same_scores = tokens <= SCORE_TOLERANCE and sums <= SCORE_TOLERANCE
    if not (same_scores and attention <= ATTENTION_TOLERANCE):
        pairs = sum(len(batch[1]) for batch in expected)
        raise ParityError(
            f"{name}: expected the model's log-probabilities of {pairs} probe pairs, got "
            f"differences of up to {tokens:.2g} for tokens, {sums:.2g} for sums (at most "
            f"{SCORE_TOLERANCE:g} allowed) and {attention:.2g} for attention (at most "
            f"{ATTENTION_TOLERANCE:g} allowed)"
        )
    return {"largest_token_score_difference": tokens, "largest_attention_difference": attention}


def check_difference(
    name: str, what: str, expected: np.ndarray, got: np.ndarray, tolerance: float = SCORE_TOLERANCE
) -> float:
    """Compare numbers, such as "scores of 100 probe pairs", and return the largest difference."""
    difference = _largest_difference(expected, got)
    if not difference <= tolerance:
        raise ParityError(
            f"{name}: expected the model's {what}, got differences of up to {difference:.2g} (at "
            f"most {tolerance:g} allowed)"
        )
    return difference


def check_tokens(name: str, expected: np.ndarray, got: np.ndarray) -> None:
    """Compare ids (N, T) with the model's, without their padding."""
    rows = zip(expected, got, strict=True)
    different = sum(list(ids[ids > 0]) != list(got_ids[got_ids > 0]) for ids, got_ids in rows)
    if different:
        raise ParityError(
            f"{name}: expected the model's translations of {len(expected)} probe sentences, got "
            f"{different} with different ids"
        )


def check_share(name: str, search: str, same: Sequence[bool], difference: float) -> None:
    """Check how many of another engine's translations are the same, and how far scores differ."""
    if sum(same) < MIN_EQUAL_SHARE * len(same) or not difference <= SCORE_TOLERANCE:
        raise ParityError(
            f"{name}: expected the model's translations of at least {MIN_EQUAL_SHARE:.0%} of "
            f"{len(same)} probe sentences in {search}, got {sum(same)} that are equal, with "
            f"log-probabilities that differ by up to {difference:.2g} (at most "
            f"{SCORE_TOLERANCE:g} allowed)"
        )


def compare_texts(
    name: str, what: str, texts: list[str], expected: list[str], got: list[str]
) -> None:
    """Compare the results for texts, such as "translations", with the model's."""
    different = [row for row in zip(texts, expected, got, strict=True) if row[1] != row[2]]
    if different:
        text, expected_result, got_result = different[0]
        raise ParityError(
            f"{name}: expected the model's {what}, got {len(different)} of {len(expected)} that "
            f"differ, for example '{got_result}' instead of '{expected_result}' for '{text}'"
        )


def _largest_difference(expected: np.ndarray, got: np.ndarray) -> float:
    """Return the largest absolute difference. NaN, for a text that is too long, equals only NaN."""
    both_nan = np.isnan(expected) & np.isnan(got)
    return float(np.max(np.where(both_nan, 0.0, np.abs(expected - got)), initial=0.0))
