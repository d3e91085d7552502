"""The conveyor: texts of any length, or the sentences of a document in, their outcomes out.

A text is split into sentences. A sentence loses the characters that the vocabulary lacks, is
searched together with others, and gets the characters back. If it is too long, it is cut in two,
and its halves go with the next round. In the end, the sentences are joined.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

from tfk_transformer.formats.lines import one_line
from tfk_transformer.formats.registry import DOCUMENT_FORMATS, check_document, read
from tfk_transformer.inference.glossary_search import GlossarySearch
from tfk_transformer.inference.text_search import TextSearch
from tfk_transformer.runtime_environment import with_install_line
from tfk_transformer.text.alignment import Hypothesis
from tfk_transformer.text.calibration import lowest_confidence
from tfk_transformer.text.kept_characters import ReadableText, take_out
from tfk_transformer.text.languages import language_code
from tfk_transformer.text.outcome import Outcome, Refused, check_texts, too_long
from tfk_transformer.text.results import DocumentTranslation, Translation
from tfk_transformer.text.road import Road, Sentences, advance
from tfk_transformer.text.splitting import SplitText, split_text

if TYPE_CHECKING:
    from tfk_transformer.formats.documents.edited_text import EditedText, Editing
    from tfk_transformer.formats.documents.translation import Translating
    from tfk_transformer.formats.office.archive import OfficeFile

Result = TypeVar("Result")
Search: TypeAlias = TextSearch | GlossarySearch  # translates sentences as they are
# Pieces are rarely longer. A sentence with more characters per token is cut before it is tokenized.
LONG_PIECE = 16
MAX_ALIGNED_TEXTS = 1000  # texts whose attention is in memory at the same time


def text_road(
    texts: Sequence[str], prefixes: Sequence[str], language: str, max_length: int
) -> Road[list[Outcome[Translation]]]:
    """Translate texts by sentences; refuse a text with a single character that is too long."""
    split_texts: list[TextOnRoad[Translation]] = [
        TextOnRoad(text, prefix, language, max_length)
        for text, prefix in zip(texts, prefixes, strict=True)
    ]
    while waiting := [(text, index) for text in split_texts for index in text.waiting()]:
        outcomes = yield Sentences(
            [text.split.sentences[index] for text, index in waiting],
            ["" if index else text.prefix for text, index in waiting],
        )
        for (text, index), outcome in reversed(list(zip(waiting, outcomes, strict=True))):
            text.take(index, outcome)  # from the last one, since a cut moves those after it
    return [
        each.refused or join_translations(each.text, each.split, each.results)
        for each in split_texts
    ]


class TextOnRoad(Generic[Result]):
    """A text, and the results of its sentences so far."""

    def __init__(self, text: str, prefix: str, language: str, max_length: int) -> None:
        self.text = text
        self.prefix = prefix
        self.split = split_text(text, language)
        self.refused: Refused | None = None
        self._results: list[Result | None] = [None] * len(self.split.sentences)
        self._max_length = max_length
        index = 0
        while index < len(self.split.sentences):
            is_long = len(self.split.sentences[index]) > LONG_PIECE * max_length
            if not (is_long and self._cut(index)):
                index += 1

    @property
    def results(self) -> list[Result]:
        """The results of all sentences, once none waits."""
        return [result for result in self._results if result is not None]

    def waiting(self) -> list[int]:
        """Return the indices of the sentences without a result."""
        if self.refused:
            return []
        return [index for index, result in enumerate(self._results) if result is None]

    def take(self, index: int, outcome: Outcome[Result]) -> None:
        """Take the outcome of a sentence. A sentence that was too long is cut in two."""
        if not isinstance(outcome, Refused):
            self._results[index] = outcome
        elif not self._cut(index):
            self.refused = too_long(self.text, self._max_length, outcome.argument)

    def _cut(self, index: int) -> bool:
        """Cut a sentence in two; return False if it has a single character."""
        if not self.split.cut(index):
            return False
        self._results.insert(index, None)
        return True


def join_translations(
    text: str, split: SplitText, translations: Sequence[Translation]
) -> Translation:
    """Return the translation of a text from the translations of its sentences."""
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


def translate_sentences(search: Search, sentences: Sentences) -> list[Outcome[Translation]]:
    """Translate sentences, except for characters that the vocabulary lacks, which stay unchanged.

    A sentence without a letter or a number stays unchanged. A sentence whose translation has a
    forced beginning is translated as it is.
    """
    characters = search.runtime.characters
    outcomes: dict[int, Outcome[Translation]] = {}
    readable: dict[int, ReadableText] = {}
    for index, (sentence, prefix) in enumerate(
        zip(sentences.texts, sentences.prefixes, strict=True)
    ):
        text = take_out(sentence, None if prefix else characters, search.terms)
        if prefix or any(map(str.isalnum, text.text)) or not sentence.strip():
            readable[index] = text
        else:
            outcomes[index] = Translation(
                sentence, [Hypothesis(sentence, 0.0)], kept_characters=text.kept
            )
    searched = search.translate(
        Sentences(
            [text.text for text in readable.values()],
            [sentences.prefixes[index] for index in readable],
            sentences.attention,
        )
    )
    for (index, text), outcome in zip(readable.items(), searched, strict=True):
        if not isinstance(outcome, Refused) and text.text != sentences.texts[index]:
            hypotheses = [
                hypothesis._replace(text=text.put_back(hypothesis.text))
                for hypothesis in outcome.hypotheses
            ]
            outcome = outcome._replace(
                source=sentences.texts[index], hypotheses=hypotheses, kept_characters=text.kept
            )
        outcomes[index] = outcome
    return [outcomes[index] for index in range(len(sentences.texts))]


def document_road(
    text: str | bytes,
    format: str,
    language: str,
    max_length: int,
    lines: bool = False,
    attention_layer: int | None = None,
    attributes: bool = False,
    target_language: str | None = None,
    front_matter: Sequence[str] = (),
    fields: Sequence[str] = (),
) -> Road[DocumentTranslation]:
    """Translate a document in a language; see `BaseTranslator.translate_document` and `Road`."""
    options = {"lines": lines, "target_language": target_language, "fields": fields}
    check_document(text, format, attributes=attributes, front_matter=front_matter, **options)
    if isinstance(text, bytes):
        limit = LONG_PIECE * max_length
        return (yield from _office_road(text, format, language, attention_layer, limit))
    check_texts([text], "text")
    if isinstance(front_matter, str):
        raise ValueError(
            f"front_matter: expected a sequence of keys, got '{front_matter}'; give "
            f"['{front_matter}']."
        )
    if target_language is not None:
        language_code(target_language, "target_language")
    try:
        from tfk_transformer.formats.documents.translation import translating
        from tfk_transformer.formats.reading.front_matter import edit_front_matter
        from tfk_transformer.formats.reading.html_attributes import edit_attributes
    except ImportError as error:
        raise with_install_line(error) from error
    limit = LONG_PIECE * max_length

    def edit(editing: "Editing") -> "Road[EditedText]":
        texts = advance(editing, None)[0] or []
        lines = read("\n".join(texts), "text", lines=True)._replace(clean=one_line)
        values = translating(lines, language)
        translation = yield from _best_hypotheses(values, attention_layer, limit)
        _, result = advance(editing, translation.text.split("\n")[: len(texts)])
        return cast("EditedText", result)

    edited: list[EditedText] = []
    if front_matter:
        edited.append((yield from edit(edit_front_matter(text, front_matter))))
        text = edited[-1].text
    if format == "html" and (attributes or target_language is not None):
        options["target_language"] = None
        edited.append((yield from edit(edit_attributes(text, attributes, target_language))))
        text = edited[-1].text
    document = read(text, format, **options)
    road = _best_hypotheses(translating(document, language), attention_layer, limit)
    translation = document.finish((yield from road))
    for each in reversed(edited):
        translation = each.restore(translation)
    return translation


def _office_road(
    data: bytes, format: str, language: str, layer: int | None, limit: int
) -> Road[DocumentTranslation]:
    """Translate the parts of an office file one after the other."""
    file: OfficeFile = DOCUMENT_FORMATS[format].read(data)
    from tfk_transformer.formats.documents.translation import translating

    parts: list[DocumentTranslation] = []
    for document, _ in file.documents.values():
        part = yield from _best_hypotheses(translating(document, language), layer, limit)
        parts.append(part)
    written = file.written([part.text for part in parts])
    return DocumentTranslation("", [row for part in parts for row in part.sentences], written)


def _best_hypotheses(
    translating: "Translating[Result]", layer: int | None, limit: int
) -> Road[Result]:
    """Answer requests of a document with the best hypotheses; None if a sentence is too long.

    A sentence with more characters than `limit` is too long before the model reads it.
    """
    request, result = advance(translating, None)
    while request is not None:
        best: list[Hypothesis | None] = [None] * len(request.texts)
        short = [index for index, text in enumerate(request.texts) if len(text) <= limit]
        size = MAX_ALIGNED_TEXTS if request.attention else max(1, len(short))
        for first in range(0, len(short), size):
            part = short[first : first + size]
            texts = [request.texts[index] for index in part]
            prefixes = [request.prefixes[index] for index in part]
            outcomes = yield Sentences(texts, prefixes, request.attention)
            for index, outcome in zip(part, outcomes, strict=True):
                best[index] = _average_heads(outcome, layer)
        request, result = advance(translating, best)
    return cast(Result, result)


def _average_heads(outcome: Outcome[Translation], layer: int | None) -> Hypothesis | None:
    """Return the best hypothesis, with the mean attention (T, S) of the heads of a layer or all."""
    if isinstance(outcome, Refused):
        return None
    best = outcome.hypotheses[0]
    if best.attention is None:
        return best
    layers = len(best.attention)
    if layer is not None and not -layers <= layer < layers:
        raise ValueError(
            f"attention_layer: expected a number from {-layers} to {layers - 1}, got {layer}."
        )
    weights = best.attention.mean(axis=0) if layer is None else best.attention[layer]
    return best._replace(attention=weights.mean(axis=0))
