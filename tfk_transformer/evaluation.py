"""Measure the quality and speed of translation on a split."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from sacrebleu.metrics import BLEU, CHRF

from tfk_transformer.datasets import Pair
from tfk_transformer.results import Translation


class Evaluation(NamedTuple):
    """Quality and speed of a translator on pairs."""

    sentences: int
    bleu: float  # from 0 to 100
    bleu_signature: str  # sacreBLEU's description of the computation
    chrf: float  # from 0 to 100
    chrf_signature: str
    exact_match: float  # percentage of sentences whose translation is the target
    seconds: float
    sentences_per_second: float


class SupportsTranslate(Protocol):
    """Any object with the method `translate`, such as a `Translator` or an `OnnxTranslator`."""

    @property
    def translate(self) -> Callable[..., Sequence[Translation]]:
        """A function (texts, **settings) that returns a translation of each text."""


def evaluate(
    translator: SupportsTranslate, pairs: Iterable[Pair], **settings: float
) -> tuple[Evaluation, list[str]]:
    """Translate the sources of pairs, and compare the translations with the targets.

    Args:
        translator: the translator.
        pairs: text pairs, from `datasets.load(spec).pairs(split)`.
        **settings: arguments of `translator.translate`, such as `beam_size`.

    Returns:
        The evaluation, with corpus BLEU (arXiv:1804.08771) and chrF of sacreBLEU, and the
        translation of each source.

    Raises:
        ValueError: if `pairs` is empty.
    """
    pairs = list(pairs)
    if not pairs:
        raise ValueError("data: expected pairs to evaluate on, got none.")
    sources = [pair.source for pair in pairs]
    targets = [pair.target for pair in pairs]
    # Trace TensorFlow functions and open files before the measurement. This needs a full batch,
    # since other functions translate small batches.
    translator.translate(sources[: int(settings.get("batch_size", 64))], **settings)
    started = time.perf_counter()
    outputs = [translation.text for translation in translator.translate(sources, **settings)]
    seconds = time.perf_counter() - started
    bleu = BLEU()
    chrf = CHRF()
    evaluation = Evaluation(
        sentences=len(targets),
        bleu=bleu.corpus_score(outputs, [targets]).score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf.corpus_score(outputs, [targets]).score,
        chrf_signature=str(chrf.get_signature()),
        exact_match=100 * sum(o == t for o, t in zip(outputs, targets, strict=True)) / len(targets),
        seconds=seconds,
        sentences_per_second=len(targets) / seconds,
    )
    return evaluation, outputs
