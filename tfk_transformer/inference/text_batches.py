"""The work of every translator and classifier around its model: check texts, batch them by length,
restore their order.
"""

import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tfk_transformer.inference.text_errors import TextError

# Characters, about sixty tokens; batches of longer texts hold fewer of them, since time and memory
# depend on tokens.
LONG = 250
LOG = logging.getLogger(__name__)
# NUL ends a string in C; half a surrogate pair has no UTF-8 encoding.
NOT_TEXT = re.compile("[\0\ud800-\udfff]")


def check_texts(texts: Sequence[str], name: str = "texts") -> None:
    """Refuse a single string, values that are not strings, and strings that runtimes would read
    differently.

    Args:
        texts: the list to check.
        name: the name of the argument, for the error message.

    Raises:
        ValueError: if `texts` is a string, or an item is not a string.
        TextError: if an item holds NUL or half a surrogate pair.
    """
    if isinstance(texts, str):
        raise ValueError(
            f"{name}: expected a list of strings, got one string; write [{texts[:20]!r}]."
        )
    wrong = {}
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"{name}: expected strings, got {type(text).__name__} at index {number}."
            )
        if found := NOT_TEXT.search(text):
            wrong[number] = (
                f"expected text, got the character U+{ord(found[0]):04X} in place "
                f"{found.start() + 1}"
            )
    if wrong:
        remedy = "remove it, or decode the bytes that it came from as UTF-8."
        first, problem = next(iter(wrong.items()))
        reasons = {number: f"{problem}; {remedy}" for number, problem in wrong.items()}
        raise TextError(name, f"{problem} of the one at index {first}; {remedy}", reasons)


def check_prefixes(prefixes: Sequence[str | None] | None, texts: Sequence[str]) -> list[str]:
    """Return the forced beginning of each text's translation, "" where nothing is forced.

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
            f"prefixes: expected one, or None, for each of {len(texts)} texts, got {len(forced)}."
        )
    return forced


def in_batches(
    texts: Sequence[str],
    batch_size: int,
    run: Callable[..., Sequence[Any]],
    *others: Sequence[Any],
    at_once: int = 1,
) -> list[tuple[Any, ...]]:
    """Run texts of similar length together and return each text's row of the results, in the order
    of `texts`.

    Args:
        texts: the texts to run.
        batch_size: texts in a batch. A batch holds fewer if they are long, see `LONG`, or if a
            thread would have no batch.
        run: maps the texts of a batch to arrays with one row for each text.
        *others: further values for each text, which `run` receives too.
        at_once: batches that run at the same time, each on its own thread.

    Raises:
        ValueError: if `batch_size` is less than 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}.")
    share = max(1, math.ceil(len(texts) / at_once))
    batches = list(_batches([len(text) for text in texts], min(batch_size, share)))
    # The longest first, so that the last batch, which one thread runs while the others are idle, is
    # short.
    batches.reverse()

    def run_one(chosen: list[int]) -> Sequence[Any]:
        return run(*([values[i] for i in chosen] for values in (texts, *others)))

    results: list[tuple[Any, ...]] = [()] * len(texts)
    done = 0
    with ThreadPoolExecutor(at_once) as threads:
        try:
            for chosen, found in zip(
                batches,
                threads.map(run_one, batches) if at_once > 1 else map(run_one, batches),
                strict=True,
            ):
                for i, row in zip(chosen, zip(*found, strict=True), strict=True):
                    results[i] = row
                done += len(chosen)
                LOG.debug(
                    "%d of %d texts", done, len(texts), extra={"done": done, "total": len(texts)}
                )
        except BaseException:
            # Else Ctrl-C would wait for all batches.
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def _batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield the indices of texts of similar length.

    A batch has at most `batch_size` texts, and with padding at most as many characters as
    `batch_size` texts of `LONG`.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (
            len(batch) == batch_size or (len(batch) + 1) * lengths[place] > batch_size * LONG
        ):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
