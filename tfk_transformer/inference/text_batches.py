"""What every translator and classifier does around its model: check texts, batch them by length, put results back in order."""

import math
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

NO_HYPOTHESIS = -5e8  # where a search found fewer hypotheses than asked for, the rest score -1e9
LONG = 250  # characters of a text, some sixty tokens, above which fewer go together: time and memory follow tokens, not texts
NOT_TEXT = re.compile("[\0\ud800-\udfff]")  # NUL ends a string in C; half a surrogate pair is no UTF-8


class Hypothesis(NamedTuple):
    """One translation of a text; what is None was not asked for."""

    text: str
    score: float  # log-probability / length penalty
    tokens: list[str] | None = None  # T pieces, the end token's too unless it was cut
    token_scores: list[float] | None = None  # T log-probabilities
    attention: Any = None  # float32 (L, H, T, S) of the decoder's layers and heads; a row sums to 1
    source_tokens: list[str] | None = None  # S pieces that attention goes to: of the source; of a decoder alone, all before the last


class Translation(NamedTuple):
    """The result for one text."""

    source: str
    hypotheses: list[Hypothesis]  # best first, at least one

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The score of the best translation."""
        return self.hypotheses[0].score


class Classification(NamedTuple):
    """The result for one text."""

    source: str
    label: str  # the most probable; "" for a blank text
    probability: float  # of the label; 0 for a blank text
    probabilities: dict[str, float]  # by label, in the model's order


def check_texts(texts: Sequence[str], name: str = "texts") -> None:
    """Refuse a lone string, what is no string, and strings that are not text, which runtimes read each in its way.

    Args:
        texts: what is checked.
        name: of the argument.
    """
    if isinstance(texts, str):
        raise ValueError(f"{name}: expected a list of strings, got one string; write [{texts[:20]!r}].")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"{name}: expected strings, got {type(text).__name__} at index {number}.")
        if found := NOT_TEXT.search(text):
            raise ValueError(
                f"{name}: expected text, got the character U+{ord(found[0]):04X} in place {found.start() + 1} of the one at index "
                f"{number}; remove it, or decode the bytes that it came from as UTF-8."
            )


def check_prefixes(prefixes: Sequence[str | None] | None, texts: Sequence[str]) -> list[str]:
    """Return what the translation of each text begins with, "" where nothing is forced; refuse what fits no list of texts."""
    if prefixes is None:
        return [""] * len(texts)
    if not isinstance(prefixes, str):
        prefixes = ["" if prefix is None else prefix for prefix in prefixes]
    check_texts(prefixes, "prefixes")
    if len(prefixes) != len(texts):
        raise ValueError(f"prefixes: expected one, or None, for each of {len(texts)} texts, got {len(prefixes)}.")
    return prefixes


def in_batches(texts: Sequence[str], batch_size: int, run: Callable, *others: Sequence, at_once: int = 1) -> list[tuple]:
    """Run texts of like length together; return each text's row of what `run` gives, in the order of `texts`.

    Args:
        texts: what is run.
        batch_size: texts of a batch; fewer where they are long, see `LONG`, or where some threads would have no batch.
        run: (texts) -> arrays with a row a text.
        *others: what goes with each text; `run` gets it too.
        at_once: batches that run side by side, each on a thread of its own.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}.")
    share = max(1, math.ceil(len(texts) / at_once))
    batches = list(_batches([len(text) for text in texts], min(batch_size, share)))
    batches.reverse()  # the longest first: what is left for one thread alone at the end is short

    def run_one(chosen):
        return run(*([values[i] for i in chosen] for values in (texts, *others)))

    results = [None] * len(texts)
    with ThreadPoolExecutor(at_once) as threads:
        for chosen, found in zip(batches, threads.map(run_one, batches) if at_once > 1 else map(run_one, batches), strict=True):
            for i, row in zip(chosen, zip(*found, strict=True), strict=True):
                results[i] = row
    return results


def _batches(lengths: Sequence[int], batch_size: int):
    """Yield the places of texts of like length: so many, or so long, padding included, as `batch_size` texts of `LONG` characters."""
    batch = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) == batch_size or (len(batch) + 1) * lengths[place] > batch_size * LONG):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def to_translations(
    texts: Sequence[str], rows: Sequence[tuple], max_length: int, prefixes: Sequence[str] | None = None
) -> list[Translation]:
    """Turn rows of texts and scores into translations.

    Raises:
        ValueError: if a score is NaN: the graph's sign for a source, or a prefix, that is too long.
    """
    _refuse_too_long(texts, [scores[0] for _, scores in rows], max_length, "texts, prefixes" if prefixes and any(prefixes) else "texts")
    return [Translation(text, _hypotheses(*row)) for text, row in zip(texts, rows, strict=True)]


def to_classifications(texts: Sequence[str], rows: Sequence[tuple], labels: Sequence[str], max_length: int) -> list[Classification]:
    """Turn rows of label, its probability and all probabilities into classifications.

    Raises:
        ValueError: if a probability is NaN: the graph's sign for a text that is too long.
    """
    _refuse_too_long(texts, [probability for _, probability, _ in rows], max_length)
    return [
        Classification(text, _decoded(label), float(probability), dict(zip(labels, map(float, probabilities), strict=True)))
        for text, (label, probability, probabilities) in zip(texts, rows, strict=True)
    ]


def _refuse_too_long(texts, scores, max_length: int, names: str = "texts") -> None:
    too_long = [i for i, score in enumerate(scores) if math.isnan(score)]
    if too_long:
        named = ", ".join(f"number {i + 1} ('{texts[i][:30]}…', {len(texts[i].split())} words)" for i in too_long[:3])
        raise ValueError(
            f"{names}: expected at most {max_length} tokens each, got more in {len(too_long)}: {named}; split them into sentences."
        )


def _hypotheses(texts, scores) -> list[Hypothesis]:
    found = [Hypothesis(_decoded(text), float(score)) for text, score in zip(texts, scores, strict=True)]
    return found[:1] + [hypothesis for hypothesis in found[1:] if hypothesis.score > NO_HYPOTHESIS]


def _decoded(text) -> str:
    return text.decode("utf-8") if isinstance(text, bytes) else str(text)
