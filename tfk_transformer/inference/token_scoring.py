"""Scores of tokens: score text pairs in batches, and convert padded ids to tokens."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.constants import END_ID, START_ID
from tfk_transformer.inference.text_batches import check_texts, run_in_batches
from tfk_transformer.inference.text_errors import TextError
from tfk_transformer.results import Hypothesis

try:
    from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
except ModuleNotFoundError as error:
    if error.name != "sentencepiece":
        raise
    raise ImportError("scores of texts need sentencepiece: pip install sentencepiece") from None


def score_in_batches(
    sources: Sequence[str],
    targets: Sequence[str],
    batch_size: int,
    max_length: int,
    run: Callable[..., Sequence[Any]],
) -> list[tuple[Any, ...]]:
    """Score pairs of texts of similar length together, and return each pair's row of the results.

    Args:
        sources: the source texts.
        targets: one translation of each source.
        batch_size: number of pairs in a batch.
        max_length: the model's limit for each side in tokens, for the error message.
        run: maps sources and targets to arrays with one row for each pair. The first array holds
            log-probabilities, NaN where a side is too long.

    Raises:
        ValueError: if the numbers of sources and targets differ.
        TextError: if a text is too long for the model. It contains the rows of the other pairs.
    """
    check_texts(sources, "sources")
    check_texts(targets, "targets")
    if len(sources) != len(targets):
        raise ValueError(
            f"targets: expected one for each of {len(sources)} sources, got {len(targets)}."
        )
    rows = run_in_batches(sources, batch_size, run, targets)
    too_long = [number for number, row in enumerate(rows) if np.isnan(row[0])]
    if too_long:
        problem = f"expected at most {max_length} tokens a side, got more in"
        raise TextError(
            "texts",
            f"{problem} pair number {too_long[0] + 1}.",
            dict.fromkeys(too_long, f"{problem} this pair; split it into sentences."),
            rows={number: row for number, row in enumerate(rows) if not np.isnan(row[0])},
        )
    return rows


class Details(NamedTuple):
    """The tokens of a target with their log-probabilities and attention."""

    tokens: list[str]  # T pieces
    token_log_probs: list[float] | None
    attention: np.ndarray | None  # float32 (L, H, T, S)
    source_tokens: list[str]  # S pieces


class Tokenizers(NamedTuple):
    """The tokenizers of both sides, which convert texts to ids and ids to tokens."""

    source_tokenizer: SubwordTokenizer
    target_tokenizer: SubwordTokenizer
    architecture: str  # of the model's configuration

    def explain(
        self,
        hypothesis: Hypothesis,
        source_ids: np.ndarray,
        ids: np.ndarray,
        log_probs: np.ndarray | None = None,
        attention: np.ndarray | None = None,
    ) -> Hypothesis:
        """Add tokens, their log-probabilities and attention to a hypothesis; see `details`."""
        return hypothesis._replace(**self.details(source_ids, ids, log_probs, attention)._asdict())

    def details(
        self,
        source_ids: np.ndarray,
        ids: np.ndarray,
        log_probs: np.ndarray | None = None,
        attention: np.ndarray | None = None,
    ) -> Details:
        """Convert ids to tokens, and remove the padding from the arrays.

        Args:
            source_ids: ids (S,) of the source, tokens and end token, padded.
            ids: ids (T,) of the target, padded.
            log_probs: float32 (T,), or None.
            attention: float32 (L, H, T, S), or None.
        """
        tokens = self.target_tokenizer.pieces_of(ids)
        source_tokens = self.source_tokenizer.pieces_of(source_ids)
        if self.architecture == "decoder":  # attention goes to all tokens before the last
            start = self.source_tokenizer.pieces_of([START_ID])
            source_tokens = [*start, *source_tokens[:-1], *tokens[:-1]]
        return Details(
            tokens=tokens,
            token_log_probs=None
            if log_probs is None
            else [float(value) for value in log_probs[: len(tokens)]],
            attention=None
            if attention is None
            else np.array(attention[:, :, : len(tokens), : len(source_tokens)]),
            source_tokens=source_tokens,
        )


def padded_ids(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Return rows of tokens as padded int32 ids (N, S), with an end token after each row."""
    ids = np.zeros((len(rows), 1 + max(map(len, rows), default=0)), "int32")
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens) + 1] = [*tokens, END_ID]
    return ids


def scoring_of_texts(
    tokenizers: Tokenizers, score: Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]]
) -> Callable[..., list[Any]]:
    """Return a function that scores texts, made from a function that scores ids.

    Args:
        tokenizers: the model's tokenizers.
        score: (int32 source ids (N, S), target ids (N, T)) -> token log-probabilities (N, T), their
            sums (N,), and perhaps attention.

    Returns:
        (sources, targets) -> log-probabilities, source ids, target ids, token log-probabilities,
        and perhaps attention.
    """

    def run(sources: Sequence[str], targets: Sequence[str]) -> list[Any]:
        source_ids = padded_ids(tokenizers.source_tokenizer.encode(sources))
        target_ids = padded_ids(tokenizers.target_tokenizer.encode(targets))
        token_log_probs, log_probability, *attention = score(source_ids, target_ids)
        return [log_probability, source_ids, target_ids, token_log_probs, *attention]

    return run


def search_with_details(
    tokenizers: Tokenizers,
    generate: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    score: Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]],
) -> Callable[..., list[Any]]:
    """Return a search over texts with scores of all tokens, made from functions over ids.

    Args:
        tokenizers: the model's tokenizers.
        generate: (source ids (N, S), prefix ids (N, P)) -> ids (N, n_best, T), scores (N, n_best).
        score: see `scoring_of_texts`.

    Returns:
        (texts, prefixes) -> texts (N, n_best), scores, source ids, ids, token log-probabilities (N,
        n_best, T), and perhaps attention.
    """

    def run(texts: Sequence[str], prefixes: Sequence[str]) -> list[Any]:
        source_ids = padded_ids(tokenizers.source_tokenizer.encode(texts))
        ids, scores = generate(source_ids, padded_ids(tokenizers.target_tokenizer.encode(prefixes)))
        count, n_best, length = ids.shape
        rows = ids.reshape(count * n_best, length)
        token_log_probs, _, *attention = score(np.repeat(source_ids, n_best, axis=0), rows)
        details = [
            part.reshape(count, n_best, *part.shape[1:]) for part in (token_log_probs, *attention)
        ]
        hypotheses = np.array(tokenizers.target_tokenizer.decode(rows.tolist()), object)
        return [hypotheses.reshape(count, n_best), scores, source_ids, ids, *details]

    return run
