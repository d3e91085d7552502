"""Batches of texts of similar length, and the functions of a model that run on one of them."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tfk_transformer.inference.runtime import TranslatorRuntime, Workload
from tfk_transformer.inference.signatures import FUNCTIONS
from tfk_transformer.text.results import Hypothesis, to_hypotheses

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

    A batch has fewer texts than `batch_size` if they are long, see `LONG_TEXT`, or if a thread
    would have no batch. `run` maps the texts of a batch, and their values of the further columns,
    to arrays with one row for each text. `concurrency` batches run at the same time, each on its
    own thread.
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
    """Yield indices of texts of similar length: `batch_size`, or fewer of a `LONG_TEXT`."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        characters = (len(batch) + 1) * lengths[index]
        if batch and (len(batch) == batch_size or characters > batch_size * LONG_TEXT):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def search_texts(
    runtime: TranslatorRuntime,
    scalars: Mapping[str, np.ndarray],
    workload: Workload,
    texts: Sequence[str],
    prefixes: Sequence[str],
) -> list[list[list[Hypothesis]]]:
    """Return one column for `run_in_batches`: the hypotheses of each text.

    The `scalars` are the search settings as inputs.
    """
    inputs = {
        "text": np.array(texts, object),
        "prefix": np.array(prefixes if any(prefixes) else [""], object),
        **scalars,
    }
    outputs = runtime.run("translate", inputs, workload)
    results = (np.asarray(outputs[name]) for name in ("translations", "scores"))
    return [list(map(to_hypotheses, *results))]


def search_with_tokens(
    runtime: TranslatorRuntime,
    scalars: Mapping[str, np.ndarray],
    workload: Workload,
    token_scores: bool,
    attention: bool,
    texts: Sequence[str],
    prefixes: Sequence[str],
) -> list[list[list[Hypothesis]]]:
    """Return the same as `search_texts`, with tokens."""
    from tfk_transformer.inference.token_scoring import padded_ids

    source_tokenizer, target_tokenizer, _ = runtime.tokenizers
    source_ids = padded_ids(source_tokenizer.encode(texts))
    prefix_ids = padded_ids(target_tokenizer.encode(prefixes))
    inputs = {"source_ids": source_ids, "prefix_ids": prefix_ids, **scalars}
    outputs = runtime.run("generate", inputs, workload)
    ids = np.asarray(outputs["ids"])
    count, n_best, length = ids.shape
    rows = ids.reshape(count * n_best, length)  # of which each has a source
    sources = np.repeat(source_ids, n_best, axis=0)
    log_probs, _, *weights = score_ids(runtime, sources, rows, attention)
    decoded = target_tokenizer.decode(rows.tolist())
    results = []
    for index, scores in enumerate(np.asarray(outputs["scores"])):
        first = index * n_best
        hypotheses = to_hypotheses(decoded[first : first + n_best], scores)
        detailed = []
        for row, hypothesis in enumerate(hypotheses, first):
            details = runtime.tokenizers.details(
                sources[row],
                rows[row],
                log_probs[row] if token_scores else None,
                weights[0][row] if attention else None,
            )
            detailed.append(hypothesis._replace(**details))
        results.append(detailed)
    return [results]


def score_texts(
    runtime: TranslatorRuntime, attention: bool, sources: Sequence[str], targets: Sequence[str]
) -> list[np.ndarray]:
    """Return columns for `run_in_batches`: log-probabilities, and the arguments of `details`."""
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
    """Return the token log-probabilities (N, T), their sums (N,) and, if requested, attention."""
    name = "score_and_attend" if attention else "score_ids"
    outputs = runtime.run(name, {"source_ids": source_ids, "target_ids": target_ids})
    if attention and outputs["attention"].shape[2] == 0:
        raise ValueError(
            "attention: expected a model with attention, got a decoder-only model of SSRUs, which "
            "have no attention heads; leave attention out."
        )
    return [np.asarray(outputs[tensor.name]) for tensor in FUNCTIONS[name].outputs]
