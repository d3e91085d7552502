"""Check texts, group them into batches by length, run the batches, and restore the order."""

import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tfk_transformer.text.outcome import TextError

# In characters, about 60 tokens. Batches of longer texts contain fewer texts, since time and memory
# depend on tokens.
LONG_TEXT = 250
LOG = logging.getLogger(__name__)
# NUL ends a string in C; half a surrogate pair has no UTF-8 encoding.
INVALID_CHARACTER = re.compile("[\0\ud800-\udfff]")


def check_texts(texts: Sequence[str], name: str = "texts") -> None:
    """Refuse values other than lists of strings, and strings that runtimes would read differently.

    Args:
        texts: the list to check.
        name: the name of the argument, for the error message.

    Raises:
        ValueError: if `texts` is a string, or an item is not a string.
        TextError: if an item contains NUL or half a surrogate pair.
    """
    if isinstance(texts, str):
        raise ValueError(
            f"{name}: expected a list of strings, got one string; write [{texts[:20]!r}]."
        )
    problems = {}
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"{name}: expected strings, got {type(text).__name__} at index {index}."
            )
        if match := INVALID_CHARACTER.search(text):
            problems[index] = (
                f"expected text, got the character U+{ord(match[0]):04X} at position "
                f"{match.start() + 1}"
            )
    if problems:
        remedy = "remove it, or decode the bytes that it came from as UTF-8."
        first, problem = next(iter(problems.items()))
        reasons = {index: f"{problem}; {remedy}" for index, problem in problems.items()}
        raise TextError(name, f"{problem} of the text at index {first}; {remedy}", reasons)


def check_prefixes(prefixes: Sequence[str | None] | None, texts: Sequence[str]) -> list[str]:
    """Return the forced beginning of each text's translation, or "".

    Raises:
        ValueError: if there is not one prefix, or None, for each text.
    """
    if prefixes is None:
        return [""] * len(texts)
    if isinstance(prefixes, str):
        check_texts(prefixes, "prefixes")
    forced = ["" if prefix is None else prefix for prefix in prefixes]
    check_texts(forced, "prefixes")
    if len(forced) != len(texts):
        raise ValueError(
            f"prefixes: expected a prefix or None for each of {len(texts)} texts, got "
            f"{len(forced)}."
        )
    return forced


def run_in_batches(
    texts: Sequence[str],
    batch_size: int,
    run: Callable[..., Sequence[Any]],
    *columns: Sequence[Any],
    concurrency: int = 1,
) -> list[tuple[Any, ...]]:
    """Run texts of similar length together, and return each text's row of the results.

    Args:
        texts: the texts.
        batch_size: number of texts in a batch. A batch has fewer texts if they are long, see
            `LONG_TEXT`, or if a thread would have no batch.
        run: maps the texts of a batch to arrays with one row for each text.
        *columns: further values for each text, which are further arguments of `run`.
        concurrency: number of batches that run at the same time, each on its own thread.

    Returns:
        One row for each text, in the order of `texts`.

    Raises:
        ValueError: if `batch_size` is less than 1.
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


def score_in_batches(
    sources: Sequence[str],
    targets: Sequence[str],
    batch_size: int,
    max_length: int,
    run: Callable[..., Sequence[Any]],
    convert: Callable[..., Any],
) -> list[Any]:
    """Score pairs of texts of similar length together.

    Args:
        sources: the source texts.
        targets: one translation of each source.
        batch_size: number of pairs in a batch.
        max_length: the model's limit for each side in tokens, for the error message.
        run: maps sources and targets to arrays with one row for each pair. The first array holds
            log-probabilities, NaN where a side is too long.
        convert: maps the index of a pair and its row of the arrays to the result.

    Returns:
        The result of each pair.

    Raises:
        ValueError: if the numbers of sources and targets differ.
        TextError: if a text is too long for the model. It contains the results of the other pairs.
    """
    check_texts(sources, "sources")
    check_texts(targets, "targets")
    if len(sources) != len(targets):
        raise ValueError(
            f"targets: expected a target for each of {len(sources)} sources, got {len(targets)}."
        )
    rows = run_in_batches(sources, batch_size, run, targets)
    results = {i: convert(i, *row) for i, row in enumerate(rows) if not np.isnan(row[0])}
    too_long = [i for i in range(len(rows)) if i not in results]
    if too_long:
        problem = f"expected at most {max_length} tokens per side, got more in"
        raise TextError(
            "texts",
            f"{problem} pair number {too_long[0] + 1}.",
            dict.fromkeys(too_long, f"{problem} this pair; split it into sentences."),
            results,
        )
    return list(results.values())
