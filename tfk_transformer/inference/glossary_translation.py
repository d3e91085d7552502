"""Translation with a glossary, as every runtime does it with its `translate`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfk_transformer.constants import UNKNOWN_ID
from tfk_transformer.glossary.forcing import Best, candidates, leftmost, missing
from tfk_transformer.glossary.terms import Glossary
from tfk_transformer.inference.results import Translation
from tfk_transformer.inference.text_batches import check_prefixes
from tfk_transformer.inference.text_errors import TextError

if TYPE_CHECKING:
    from tfk_transformer.inference.base_translator import BaseTranslator

DETAILS = ("token_scores", "attention")
LENGTH_PENALTY = 0.6  # the default of `SearchSettings`, which needs pydantic
# Forced beginnings that are searched together, so that memory does not grow with the number of
# texts.
MAX_CANDIDATES = 4096


def translate_with_glossary(
    translator: "BaseTranslator",
    texts: Sequence[str],
    glossary: Glossary | Mapping[str, str],
    prefixes: Sequence[str | None] | None,
    **options: Any,
) -> list[Translation]:
    """Translate texts; see `TranslatorProtocol.translate`.

    Raises:
        ValueError: if `n_best` asks for several hypotheses, the model's vocabulary lacks letters of
            a term, or the files cannot score.
        TextError: if a text is too long for the model. It contains the other translations.
    """
    if options.get("n_best", 1) > 1:
        raise ValueError(
            f"n_best: expected 1 with a glossary, got {options['n_best']}; leave out either."
        )
    terms = glossary if isinstance(glossary, Glossary) else Glossary(glossary)
    _check_spelling(terms, translator)
    try:
        found = dict(enumerate(translator.translate(texts, prefixes=prefixes, **options)))
    except TextError as error:
        error.results = _Forcing(translator, texts, prefixes, terms, options).applied(error.results)
        raise
    return list(_Forcing(translator, texts, prefixes, terms, options).applied(found).values())


def _check_spelling(glossary: Glossary, translator: "BaseTranslator") -> None:
    targets = sorted(set(glossary.terms.values()))
    ids = translator._tokenizers.target_tokenizer.encode(targets)
    if wrong := [term for term, tokens in zip(targets, ids, strict=True) if UNKNOWN_ID in tokens]:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ValueError(
            "glossary: expected terms that the model's vocabulary can spell, got "
            f"{', '.join(wrong[:5])}{more}; remove them."
        )


class _Forcing:
    """Texts, the terms that their translations need, and what is forced so far, all by number."""

    def __init__(
        self,
        translator: "BaseTranslator",
        texts: Sequence[str],
        prefixes: Sequence[str | None] | None,
        glossary: Glossary,
        options: Mapping[str, Any],
    ):
        self.translator = translator
        self.texts = texts
        self.options = options
        self.wanted = [glossary.found_in(text) for text in texts]
        self.forced = check_prefixes(prefixes, texts)
        self.placed: list[list[str]] = [[] for _ in texts]

    def applied(self, found: Mapping[int, Translation]) -> dict[int, Translation]:
        """Return translations with their terms. One that has no room for a term stays without
        it.
        """
        changed: dict[int, Translation] = {}
        waiting = list(found)
        while waiting:
            best: dict[int, list[Best[Translation]]] = {}
            for number, one in self._tried(
                {number: changed.get(number, found[number]).text for number in waiting}
            ):
                best.setdefault(number, []).append(one)
            for number, tried in best.items():
                chosen = leftmost(tried)
                self.forced[number] = chosen.candidate.prefix
                self.placed[number].append(chosen.candidate.term)
                changed[number] = chosen.found
            waiting = list(best)
        if any(self.options.get(name) for name in DETAILS):
            numbers = list(changed)
            detailed = self._translated(
                numbers, [self.forced[number] for number in numbers], self.options
            )
            changed = {numbers[place]: translation for place, translation in detailed.items()}
        return {**found, **changed}

    def _tried(self, found: Mapping[int, str]) -> Iterator[tuple[int, Best[Translation]]]:
        """Yield, for every missing term at every place of translations, the number of the text, and
        the best with this beginning.
        """
        jobs = [
            (number, made)
            for number, text in found.items()
            for made in candidates(
                missing(self.wanted[number], text, self.placed[number]), text, self.forced[number]
            )
        ]
        search = {name: value for name, value in self.options.items() if name not in DETAILS}
        for first in range(0, len(jobs), MAX_CANDIDATES):
            part = jobs[first : first + MAX_CANDIDATES]
            results = self._translated(
                [number for number, _ in part], [made.prefix for _, made in part], search
            )
            scores = self._scores([part[place][0] for place in results], list(results.values()))
            for (place, translation), score in zip(results.items(), scores, strict=True):
                yield part[place][0], Best(part[place][1], translation, score)

    def _scores(self, numbers: Sequence[int], translations: Sequence[Translation]) -> list[float]:
        """Return the scores of whole translations. Those of the search leave out what was
        forced.
        """
        texts = [translation.text for translation in translations]
        batch_size, power = (
            self.options["batch_size"],
            self.options.get("length_penalty", LENGTH_PENALTY),
        )
        sources = [self.texts[number] for number in numbers]
        try:
            found = dict(
                enumerate(self.translator.score_tokens(sources, texts, batch_size=batch_size))
            )
        except TextError as error:
            # With what is forced, a translation can be longer than what the model scores.
            found = error.results
        scores = {
            number: one.log_probability / ((5 + len(one.tokens)) / 6) ** power
            for number, one in found.items()
        }
        return [scores.get(number, -math.inf) for number in range(len(texts))]

    def _translated(
        self, numbers: Sequence[int], prefixes: Sequence[str], options: Mapping[str, Any]
    ) -> Mapping[int, Translation]:
        """Return the translations of texts with forced beginnings by their place in the list,
        without those that are too long.
        """
        if not numbers:
            return {}
        texts = [self.texts[number] for number in numbers]
        try:
            return dict(enumerate(self.translator.translate(texts, prefixes=prefixes, **options)))
        except TextError as error:
            return error.results
