"""Translate texts of any number of sentences with a function that translates sentences."""

from collections.abc import Callable, Container, Sequence
from typing import TypeAlias

from tfk_transformer.inference.calibration import lowest_confidence
from tfk_transformer.text.kept_characters import ReadableText, is_lexical, take_out
from tfk_transformer.text.outcome import TextError, long_texts_error
from tfk_transformer.text.results import Hypothesis, Translation
from tfk_transformer.text.splitting import SplitText, split_text

# (sentences, the forced beginning of each translation or "") -> translations.
Translate: TypeAlias = Callable[[Sequence[str], Sequence[str]], list[Translation]]
# Pieces are rarely longer. A sentence with more characters per token is cut before it is tokenized.
LONG_PIECE = 16


def translate_readable(
    translate: Translate,
    sentences: Sequence[str],
    prefixes: Sequence[str],
    characters: Container[str] | None,
    max_length: int,
    exempt: Container[str] = (),
) -> list[Translation]:
    """Translate sentences, except for characters that the vocabulary lacks, which stay unchanged.

    A sentence without a letter or a number stays unchanged. A sentence whose translation has a
    forced beginning is translated as it is.

    Args:
        translate: translates sentences.
        sentences: the sentences.
        prefixes: the forced beginning of each translation, or "".
        characters: the characters that the source vocabulary represents. None: all.
        max_length: the model's limit in tokens, for the error message.
        exempt: further characters that the model reads.

    Raises:
        TextError: if a sentence is too long. It contains the other translations.
    """
    results: dict[int, Translation] = {}
    readable: dict[int, ReadableText] = {}
    for index, sentence in enumerate(sentences):
        text = take_out(sentence, None if prefixes[index] else characters, exempt)
        if prefixes[index] or any(map(is_lexical, text.text)) or not sentence.strip():
            readable[index] = text
        else:
            results[index] = Translation(
                sentence, [Hypothesis(sentence, 0.0)], kept_characters=text.kept
            )
    refusal: TextError | None = None
    texts = [text.text for text in readable.values()]
    forced = [prefixes[index] for index in readable]
    try:
        translations = dict(enumerate(translate(texts, forced)))
    except TextError as error:
        refusal = error
        translations = error.results
    indices = list(readable)
    for row, translation in translations.items():
        index = indices[row]
        results[index] = _with_units(translation, sentences[index], readable[index])
    if refusal is not None:
        too_long = [indices[row] for row in refusal.reasons]
        raise long_texts_error(sentences, too_long, results, max_length, refusal.argument)
    return [results[index] for index in range(len(sentences))]


def _with_units(translation: Translation, source: str, readable: ReadableText) -> Translation:
    """Return a translation with the characters that were kept out of the search."""
    if not readable.units:
        return translation
    hypotheses = [
        hypothesis._replace(text=readable.put_back(hypothesis.text))
        for hypothesis in translation.hypotheses
    ]
    return translation._replace(source=source, hypotheses=hypotheses, kept_characters=readable.kept)


class _PendingText:
    """A text, and the translations of its sentences so far."""

    def __init__(self, text: str, prefix: str, language: str, max_characters: int) -> None:
        self.text = text
        self.split = split_text(text, language)
        self.translations: list[Translation | None] = [None] * len(self.split.sentences)
        self.prefix = prefix
        self.is_too_long = False
        index = 0
        while index < len(self.split.sentences):
            if len(self.split.sentences[index]) <= max_characters or not self.cut(index):
                index += 1

    @property
    def missing(self) -> list[int]:
        """The indices of the sentences to translate."""
        if self.is_too_long:
            return []
        return [index for index, result in enumerate(self.translations) if result is None]

    def cut(self, index: int) -> bool:
        """Cut a sentence in two; return False if it has a single character."""
        if not self.split.cut(index):
            return False
        self.translations.insert(index, None)
        return True

    def result(self) -> Translation:
        """Return the translation of the text."""
        return join_translations(
            self.text, self.split, [result for result in self.translations if result is not None]
        )


def translate_texts(
    translate: Translate,
    texts: Sequence[str],
    prefixes: Sequence[str],
    language: str,
    max_length: int,
) -> list[Translation]:
    """Translate texts sentence by sentence. A sentence that is too long is translated in parts.

    Args:
        translate: translates sentences. Its `TextError` contains the other translations.
        texts: the texts.
        prefixes: the forced beginning of each text's translation, or "".
        language: the ISO 639 code of the texts' language, for the ends of sentences.
        max_length: the model's limit in tokens.

    Raises:
        TextError: if a single character, or a prefix, is too long. It contains the other
            translations.
    """
    pending = [
        _PendingText(text, prefix, language, LONG_PIECE * max_length)
        for text, prefix in zip(texts, prefixes, strict=True)
    ]
    if not texts:
        return translate([], [])  # checks the settings
    argument = "texts"
    while jobs := [(text, index) for text in pending for index in text.missing]:
        sentences = [text.split.sentences[index] for text, index in jobs]
        forced = ["" if index else text.prefix for text, index in jobs]
        too_long: list[int] = []
        try:
            translations = dict(enumerate(translate(sentences, forced)))
        except TextError as error:
            argument = error.argument
            translations = error.results
            too_long = sorted(error.reasons, reverse=True)  # a cut moves the sentences after it
        for job, translation in translations.items():
            text, index = jobs[job]
            text.translations[index] = translation
        for job in too_long:
            text, index = jobs[job]
            text.is_too_long = not text.cut(index) or text.is_too_long
    refused = [index for index, text in enumerate(pending) if text.is_too_long]
    results = {i: text.result() for i, text in enumerate(pending) if not text.is_too_long}
    if refused:
        raise long_texts_error(texts, refused, results, max_length, argument)
    return list(results.values())


def join_translations(
    text: str, split: SplitText, translations: Sequence[Translation]
) -> Translation:
    """Return the translation of a text from the translations of its sentences.

    Args:
        text: the text.
        split: its sentences.
        translations: the translation of each sentence.
    """
    count = max(len(translation.hypotheses) for translation in translations)
    kept = sum(translation.kept_characters for translation in translations)
    hypotheses = []
    for rank in range(count):
        # A sentence with fewer hypotheses repeats its last one.
        ranked = [
            translation.hypotheses[min(rank, len(translation.hypotheses) - 1)]
            for translation in translations
        ]
        joined = split.join([hypothesis.text for hypothesis in ranked])
        if len(ranked) == 1:
            hypotheses.append(ranked[0]._replace(text=joined))
        else:
            hypotheses.append(Hypothesis(joined, sum(hypothesis.score for hypothesis in ranked)))
    sentences = translations if len(translations) > 1 else ()
    return Translation(text, hypotheses, sentences, kept, lowest_confidence(translations))
