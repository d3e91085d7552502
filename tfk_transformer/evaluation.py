"""Translation quality and speed on a split."""

import time
from typing import NamedTuple

from sacrebleu.metrics import BLEU, CHRF


class Evaluation(NamedTuple):
    """Quality of a translator on pairs it was not trained on."""

    sentences: int
    bleu: float  # 0 .. 100
    bleu_signature: str
    chrf: float  # 0 .. 100
    chrf_signature: str
    exact_match: float  # percent
    seconds: float
    sentences_per_second: float


def evaluate(translator, pairs, **settings) -> tuple[Evaluation, list[str]]:
    """Translate the sources of pairs and compare with the targets.

    Args:
        translator: anything with `translate(texts, **settings)`.
        pairs: of `datasets`.
        **settings: of the search.

    Returns:
        The figures, with sacreBLEU's corpus BLEU (arXiv:1804.08771) and chrF, and the translations.

    Raises:
        ValueError: if there are no pairs.
    """
    pairs = list(pairs)
    if not pairs:
        raise ValueError("data: expected pairs to evaluate on, got none.")
    sources = [pair.source for pair in pairs]
    # Graphs are traced and files opened before the clock starts: those for one text and for few differ from those for many.
    translator.translate(sources[: settings.get("batch_size", 64)], **settings)
    started = time.perf_counter()
    outputs = [translation.text for translation in translator.translate(sources, **settings)]
    seconds = time.perf_counter() - started
    targets = [pair.target for pair in pairs]
    bleu, chrf = BLEU(), CHRF()
    return (
        Evaluation(
            sentences=len(pairs),
            bleu=bleu.corpus_score(outputs, [targets]).score,
            bleu_signature=str(bleu.get_signature()),
            chrf=chrf.corpus_score(outputs, [targets]).score,
            chrf_signature=str(chrf.get_signature()),
            exact_match=100 * sum(o == t for o, t in zip(outputs, targets, strict=True)) / len(pairs),
            seconds=seconds,
            sentences_per_second=len(pairs) / seconds,
        ),
        outputs,
    )
