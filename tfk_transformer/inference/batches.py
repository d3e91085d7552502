"""Group texts into batches by length, and run the functions of a model on a batch."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tfk_transformer.inference.runtime import TranslatorRuntime, Workload
from tfk_transformer.inference.signatures import FUNCTIONS

# In characters, about 60 tokens. Batches of longer texts contain fewer texts, since time and memory
# depend on tokens.
LONG_TEXT = 250
LOG = logging.getLogger(__name__)


def run_in_batches(
    texts: Sequence[str],
    batch_size: int,
    run: Callable[..., Sequence[Any]],
    *columns: Sequence[Any],
    concurrency: int = 1,
) -> list[tuple[Any, ...]]:
    """Run texts of similar length together, and return each text's row of the results, in order.

    Args:
        texts: the texts.
        batch_size: number of texts in a batch. A batch has fewer texts if they are long, see
            `LONG_TEXT`, or if a thread would have no batch.
        run: maps the texts of a batch to arrays with one row for each text.
        *columns: further values for each text, which are further arguments of `run`.
        concurrency: number of batches that run at the same time, each on its own thread.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}.")
    share = max(1, math.ceil(len(texts) / concurrency))
    batches = list(_batches([len(text) for text in texts], min(batch_size, share)))
    # The longest batches run first: the last batch, during which other threads are idle, is short.
    batches.reverse()

    def run_batch(batch: list[int]) -> Sequence[Any]:
        return run(*([values[i] for i in batch] for values in (texts, *columns)))

    results: list[tuple[Any, ...]] = [()] * len(texts)
    done = 0
    with ThreadPoolExecutor(concurrency) as threads:
        try:
            outputs = (
                threads.map(run_batch, batches) if concurrency > 1 else map(run_batch, batches)
            )
            for batch, arrays in zip(batches, outputs, strict=True):
                for i, row in zip(batch, zip(*arrays, strict=True), strict=True):
                    results[i] = row
                done += len(batch)
                LOG.debug(
                    "%d of %d texts", done, len(texts), extra={"done": done, "total": len(texts)}
                )
        except BaseException:
            # Otherwise Ctrl-C would wait for all batches.
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def _batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield the indices of texts of similar length.

    A batch has at most `batch_size` texts, and at most `batch_size * LONG_TEXT` characters with
    padding.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        characters = (len(batch) + 1) * lengths[index]
        if batch and (len(batch) == batch_size or characters > batch_size * LONG_TEXT):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


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
