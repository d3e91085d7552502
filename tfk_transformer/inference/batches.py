"""Batches of texts of similar length, and the scores of one of them."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tfk_transformer.inference.runtime import TranslatorRuntime
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
