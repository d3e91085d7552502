"""Translate with a glossary, with functions that translate and score."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tfk_transformer.config.search_settings import (
    PENALTY_FORMS,
    Rules,
    SearchSettings,
    length_penalty,
)
from tfk_transformer.constants import UNKNOWN_ID
from tfk_transformer.inference.text_batches import check_prefixes
from tfk_transformer.text.forcing import (
    Candidate,
    ScoredCandidate,
    candidates,
    leftmost_candidate,
    missing_terms,
)
from tfk_transformer.text.outcome import TextError
from tfk_transformer.text.results import ScoredTarget, Translation
from tfk_transformer.text.terms import Glossary

if TYPE_CHECKING:
    from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

Translate: TypeAlias = Callable[..., list[Translation]]
ScoreTokens: TypeAlias = Callable[..., list[ScoredTarget]]

DETAILS = ("token_scores", "attention")
MAX_CANDIDATES = 4096  # searched together, so that memory does not grow with the number of texts


def translate_with_glossary(
    translate: Translate,
    score_tokens: ScoreTokens,
    target_tokenizer: "SubwordTokenizer",
    texts: Sequence[str],
    glossary: Glossary | Mapping[str, str],
    prefixes: Sequence[str | None] | None,
    options: Mapping[str, Any],
    rules: Rules,
) -> list[Translation]:
    """Translate texts; see `BaseTranslator.translate`.

    Args:
        translate: translates texts with prefixes and options, without a glossary.
        score_tokens: scores pairs of sources and targets, given a batch size.
        target_tokenizer: the tokenizer of the translations.
        texts: the source texts.
        glossary: source terms with their translations.
        prefixes: the forced beginnings of the translations.
        options: the other arguments of `BaseTranslator.translate`.
        rules: the rules of the search settings.

    Raises:
        ValueError: if `n_best` is not 1, the model's vocabulary lacks letters of a term, or the
            files cannot score.
        TextError: if a text is too long for the model. It contains the other translations.
    """
    if options.get("n_best", 1) > 1:
        raise ValueError(
            f"n_best: expected 1 with a glossary, got {options['n_best']}; leave out one of them."
        )
    terms = glossary if isinstance(glossary, Glossary) else Glossary(glossary)
    _check_spelling(terms, target_tokenizer)
    search = _TermSearch(translate, score_tokens, texts, prefixes, terms, options, rules)
    try:
        translations = translate(texts, prefixes, **options)
    except TextError as error:
        error.results = search.add_terms(error.results)
        raise
    return list(search.add_terms(dict(enumerate(translations))).values())


def _check_spelling(glossary: Glossary, target_tokenizer: "SubwordTokenizer") -> None:
    targets = sorted(set(glossary.terms.values()))
    ids = target_tokenizer.encode(targets)
    if wrong := [term for term, tokens in zip(targets, ids, strict=True) if UNKNOWN_ID in tokens]:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ValueError(
            "glossary: expected terms that the model's vocabulary can spell, got "
            f"{', '.join(wrong[:5])}{more}; remove them."
        )


class _TermSearch:
    """The search for translations with glossary terms. Each list has one item for each text."""

    def __init__(
        self,
        translate: Translate,
        score_tokens: ScoreTokens,
        texts: Sequence[str],
        prefixes: Sequence[str | None] | None,
        glossary: Glossary,
        options: Mapping[str, Any],
        rules: Rules,
    ):
        self.translate = translate
        self.score_tokens = score_tokens
        self.texts = texts
        self.options = options
        self.rules = rules
        self.terms = [glossary.found_in(text) for text in texts]
        self.prefixes = check_prefixes(prefixes, texts)
        self.forced_terms: list[list[str]] = [[] for _ in texts]

    def add_terms(self, translations: Mapping[int, Translation]) -> dict[int, Translation]:
        """Return the translations with their terms, by the index of the text.

        If a term does not fit into a translation, the translation stays without the term.
        """
        changed: dict[int, Translation] = {}
        pending = list(translations)
        while pending:
            texts = {index: changed.get(index, translations[index]).text for index in pending}
            results: dict[int, list[ScoredCandidate[Translation]]] = {}
            for index, result in self._search(texts):
                results.setdefault(index, []).append(result)
            for index, alternatives in results.items():
                best = leftmost_candidate(alternatives)
                self.prefixes[index] = best.candidate.prefix
                self.forced_terms[index].append(best.candidate.term)
                changed[index] = best.translation
            pending = list(results)
        if any(self.options.get(name) for name in DETAILS):
            indices = list(changed)
            prefixes = [self.prefixes[index] for index in indices]
            detailed = self._translate(indices, prefixes, self.options)
            changed = {indices[position]: translation for position, translation in detailed.items()}
        return {**translations, **changed}

    def _search(
        self, translations: Mapping[int, str]
    ) -> Iterator[tuple[int, ScoredCandidate[Translation]]]:
        """Try a translation with each missing term at each position of the current translation.

        Args:
            translations: the text of the current translation, by the index of the source text.

        Yields:
            The index of a source text, and a translation of it that contains a missing term.
        """
        searches: list[tuple[int, Candidate]] = []
        for index, text in translations.items():
            lacking = missing_terms(self.terms[index], text, self.forced_terms[index])
            searches += [
                (index, candidate) for candidate in candidates(lacking, text, self.prefixes[index])
            ]
        options = {name: value for name, value in self.options.items() if name not in DETAILS}
        for first in range(0, len(searches), MAX_CANDIDATES):
            chunk = searches[first : first + MAX_CANDIDATES]
            indices = [index for index, _ in chunk]
            results = self._translate(
                indices, [candidate.prefix for _, candidate in chunk], options
            )
            scores = self._scores(
                [indices[position] for position in results], list(results.values())
            )
            for (position, translation), score in zip(results.items(), scores, strict=True):
                yield indices[position], ScoredCandidate(chunk[position][1], translation, score)

    def _scores(self, indices: Sequence[int], translations: Sequence[Translation]) -> list[float]:
        """Return the scores of whole translations, since scores of a search exclude the prefix."""
        sources = [self.texts[index] for index in indices]
        targets = [translation.text for translation in translations]
        batch_size = self.options["batch_size"]
        defaults = {name: rule["default"] for name, rule in self.rules.items()}
        settings = {**SearchSettings().as_dict(), **defaults, **self.options}
        form = PENALTY_FORMS[settings["length_penalty_form"]]
        alpha = settings["length_penalty"]
        try:
            results = dict(enumerate(self.score_tokens(sources, targets, batch_size=batch_size)))
        except TextError as error:
            # With its prefix, a translation can be longer than the model's limit for scoring.
            results = error.results
        scores = {
            position: result.log_probability / length_penalty(len(result.tokens), alpha, form)
            for position, result in results.items()
        }
        return [scores.get(position, -math.inf) for position in range(len(targets))]

    def _translate(
        self, indices: Sequence[int], prefixes: Sequence[str], options: Mapping[str, Any]
    ) -> Mapping[int, Translation]:
        """Return the translations of texts with prefixes, by their position in `indices`.

        Texts that are too long for the model have no translation.
        """
        if not indices:
            return {}
        texts = [self.texts[index] for index in indices]
        try:
            return dict(enumerate(self.translate(texts, prefixes, **options)))
        except TextError as error:
            return error.results
