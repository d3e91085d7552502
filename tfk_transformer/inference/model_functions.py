"""The functions of a model on one batch of texts: search and scoring, on any runtime."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfk_transformer.inference.runtime import TranslatorRuntime, Workload
from tfk_transformer.inference.signatures import FUNCTIONS


def search(
    runtime: TranslatorRuntime,
    scalars: Mapping[str, np.ndarray],
    workload: Workload,
    texts: Sequence[str],
    prefixes: Sequence[str],
) -> list[np.ndarray]:
    """Return the texts of the hypotheses (N, n_best), and their scores (N, n_best)."""
    inputs = {
        "text": np.array(texts, object),
        "prefix": np.array(prefixes if any(prefixes) else [""], object),
        **scalars,
    }
    outputs = runtime.run("translate", inputs, workload)
    return [np.asarray(outputs[name]) for name in ("translations", "scores")]


def search_with_tokens(
    runtime: TranslatorRuntime,
    scalars: Mapping[str, np.ndarray],
    workload: Workload,
    attention: bool,
    texts: Sequence[str],
    prefixes: Sequence[str],
) -> list[Any]:
    """Return what `search` returns, and the tokens of the hypotheses.

    Returns:
        Texts (N, n_best), scores (N, n_best), source ids (N, S), ids (N, n_best, T), token
        log-probabilities (N, n_best, T) and, if requested, attention (N, n_best, L, H, T, S).
    """
    from tfk_transformer.inference.token_scoring import padded_ids

    source_tokenizer, target_tokenizer, _ = runtime.tokenizers
    source_ids = padded_ids(source_tokenizer.encode(texts))
    prefix_ids = padded_ids(target_tokenizer.encode(prefixes))
    inputs = {"source_ids": source_ids, "prefix_ids": prefix_ids, **scalars}
    outputs = runtime.run("generate", inputs, workload)
    ids = np.asarray(outputs["ids"])
    count, n_best, length = ids.shape
    rows = ids.reshape(count * n_best, length)
    token_log_probs, _, *weights = score_ids(
        runtime, np.repeat(source_ids, n_best, axis=0), rows, attention
    )
    details = [
        values.reshape(count, n_best, *values.shape[1:]) for values in (token_log_probs, *weights)
    ]
    hypotheses = np.array(target_tokenizer.decode(rows.tolist()), object)
    scores = np.asarray(outputs["scores"])
    return [hypotheses.reshape(count, n_best), scores, source_ids, ids, *details]


def score(
    runtime: TranslatorRuntime, attention: bool, sources: Sequence[str], targets: Sequence[str]
) -> list[np.ndarray]:
    """Return log-probabilities (N,), source ids (N, S), target ids (N, T), token log-probabilities
    (N, T) and, if requested, attention (N, L, H, T, S).
    """
    from tfk_transformer.inference.token_scoring import padded_ids

    source_ids = padded_ids(runtime.tokenizers.source_tokenizer.encode(sources))
    target_ids = padded_ids(runtime.tokenizers.target_tokenizer.encode(targets))
    token_log_probs, log_probability, *weights = score_ids(
        runtime, source_ids, target_ids, attention
    )
    return [log_probability, source_ids, target_ids, token_log_probs, *weights]


def score_ids(
    runtime: TranslatorRuntime, source_ids: np.ndarray, target_ids: np.ndarray, attention: bool
) -> list[np.ndarray]:
    """Return the token log-probabilities (N, T), their sums (N,) and, if requested, attention.

    Raises:
        ValueError: if attention is requested from a model without attention.
    """
    name = "score_and_attend" if attention else "score_ids"
    outputs = runtime.run(name, {"source_ids": source_ids, "target_ids": target_ids})
    if attention and outputs["attention"].shape[2] == 0:
        raise ValueError(
            "attention: expected a model with attention, got a decoder-only model of SSRUs, which "
            "have no attention heads; leave attention out."
        )
    return [np.asarray(outputs[tensor.name]) for tensor in FUNCTIONS[name].outputs]
