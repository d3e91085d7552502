"""Search with a glossary: further searches, whose forced prefixes end with a missing term."""

import math
from collections.abc import Iterator, Mapping, Sequence

from tfk_transformer.config.search_settings import PENALTY_FORMS, length_penalty
from tfk_transformer.constants import UNKNOWN_ID
from tfk_transformer.inference.text_search import TextSearch, score_pairs
from tfk_transformer.text.glossary import (
    Candidate,
    Glossary,
    ScoredCandidate,
    candidates,
    leftmost_candidate,
    missing_terms,
)
from tfk_transformer.text.outcome import Outcome, Refused
from tfk_transformer.text.results import Translation
from tfk_transformer.text.road import Sentences

MAX_CANDIDATES = 4096  # searched together, so that memory does not grow with the number of texts


class GlossarySearch:
    """A search, whose translations also have the terms of a glossary.

    Raises:
        ValueError: if `n_best` is not 1, the model's vocabulary lacks letters of a term, or the
            files cannot score.
    """

    def __init__(self, search: TextSearch, glossary: Glossary | Mapping[str, str]) -> None:
        search.runtime.require("glossary", "translate", "score_ids")
        if (n_best := search.requested.get("n_best", 1)) > 1:
            raise ValueError(
                f"n_best: expected 1 with a glossary, got {n_best}; leave out one of them."
            )
        self.runtime = search.runtime
        self._search = search
        self._glossary = glossary if isinstance(glossary, Glossary) else Glossary(glossary)
        # Characters that the search must read.
        self.terms = frozenset("".join(self._glossary.terms))
        targets = sorted(set(self._glossary.terms.values()))
        ids = self.runtime.tokenizers.target_tokenizer.encode(targets)
        wrong = [term for term, tokens in zip(targets, ids, strict=True) if UNKNOWN_ID in tokens]
        if wrong:
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise ValueError(
                "glossary: expected terms that the model's vocabulary can spell, got "
                f"{', '.join(wrong[:5])}{more}; remove them."
            )

    def translate(self, sentences: Sentences) -> list[Outcome[Translation]]:
        """Return the outcome of each text, without a term that does not fit."""
        outcomes = self._search.translate(sentences)
        done = {i: each for i, each in enumerate(outcomes) if not isinstance(each, Refused)}
        changed = _TermSearch(self._search, self._glossary, sentences).add_terms(done)
        return [changed.get(index, outcome) for index, outcome in enumerate(outcomes)]


class _TermSearch:
    """The search for the terms of one list of texts. Each list has one item for each text."""

    def __init__(self, search: TextSearch, glossary: Glossary, sentences: Sentences) -> None:
        self._search = search
        self._texts = sentences.texts
        self._attention = sentences.attention
        self._terms = [glossary.found_in(text) for text in sentences.texts]
        self._prefixes = list(sentences.prefixes)
        self._forced_terms: list[list[str]] = [[] for _ in sentences.texts]

    def add_terms(self, translations: Mapping[int, Translation]) -> dict[int, Translation]:
        """Return the translations that change because they lacked terms, by index of the text."""
        changed: dict[int, Translation] = {}
        pending = list(translations)
        while pending:
            texts = {index: changed.get(index, translations[index]).text for index in pending}
            results: dict[int, list[ScoredCandidate]] = {}
            for index, result in self._scored_candidates(texts):
                results.setdefault(index, []).append(result)
            for index, alternatives in results.items():
                best = leftmost_candidate(alternatives)
                self._prefixes[index] = best.candidate.prefix
                self._forced_terms[index].append(best.candidate.term)
                changed[index] = best.translation
            pending = list(results)
        if changed and (self._search.needs_tokens or self._attention):
            indices = list(changed)
            prefixes = [self._prefixes[index] for index in indices]
            detailed = self._translate(indices, prefixes, needs_tokens=True)
            return {indices[row]: translation for row, translation in detailed.items()}
        return changed

    def _scored_candidates(
        self, translations: Mapping[int, str]
    ) -> Iterator[tuple[int, ScoredCandidate]]:
        """Try each missing term at each position of translations; yield the index of the text."""
        searches: list[tuple[int, Candidate]] = []
        for index, text in translations.items():
            lacking = missing_terms(self._terms[index], text, self._forced_terms[index])
            searches += [
                (index, candidate) for candidate in candidates(lacking, text, self._prefixes[index])
            ]
        for first in range(0, len(searches), MAX_CANDIDATES):
            chunk = dict(enumerate(searches[first : first + MAX_CANDIDATES]))
            indices = [index for index, _ in chunk.values()]
            prefixes = [candidate.prefix for _, candidate in chunk.values()]
            results = self._translate(indices, prefixes)
            scores = self._scores([indices[row] for row in results], list(results.values()))
            for (row, translation), score in zip(results.items(), scores, strict=True):
                yield indices[row], ScoredCandidate(chunk[row][1], translation, score)

    def _translate(
        self, indices: Sequence[int], prefixes: list[str], needs_tokens: bool = False
    ) -> dict[int, Translation]:
        """Return the translations of texts that are not too long, by position in `indices`."""
        sentences = Sentences([self._texts[index] for index in indices], prefixes, self._attention)
        outcomes = self._search.translate_with(sentences, needs_tokens)
        return {row: each for row, each in enumerate(outcomes) if not isinstance(each, Refused)}

    def _scores(self, indices: Sequence[int], translations: Sequence[Translation]) -> list[float]:
        """Return the scores of whole translations, since scores of a search exclude the prefix."""
        settings = self._search.settings
        form = PENALTY_FORMS[settings["length_penalty_form"]]
        outcomes = score_pairs(
            self._search.runtime,
            [self._texts[index] for index in indices],
            [translation.text for translation in translations],
            self._search.batch_size,
        )
        # With its prefix, a translation can be longer than the model's limit for scoring.
        return [
            -math.inf
            if isinstance(outcome, Refused)
            else outcome.log_probability
            / length_penalty(len(outcome.tokens), settings["length_penalty"], form)
            for outcome in outcomes
        ]
