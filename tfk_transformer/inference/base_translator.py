"""The translation of texts, which all runtimes share; the search is the runtime's."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfk_transformer.inference.document_translation import translate_document
from tfk_transformer.inference.glossary_translation import translate_with_glossary
from tfk_transformer.inference.pair_scoring import PairScorer
from tfk_transformer.inference.results import to_translations
from tfk_transformer.inference.text_batches import check_prefixes, check_texts, run_in_batches
from tfk_transformer.inference.text_errors import TextError
from tfk_transformer.results import Translation

if TYPE_CHECKING:
    from tfk_transformer.documents.results import DocumentTranslation
    from tfk_transformer.glossary.terms import Glossary


class Request(NamedTuple):
    """The arguments of `translate`, without the texts and the search settings."""

    texts: int  # the number of texts
    batch_size: int
    token_scores: bool
    attention: bool
    use_cache: bool

    @property
    def details(self) -> bool:
        """Whether hypotheses have tokens."""
        return self.token_scores or self.attention


class BatchSearch(NamedTuple):
    """A search that is ready to run."""

    # (texts, prefixes) -> texts (N, n_best), scores (N, n_best) and, where details are requested,
    # int32 source ids (N, S), ids (N, n_best, T), float32 token log-probabilities (N, n_best, T)
    # and perhaps attention (N, n_best, L, H, T, S).
    run: Callable[..., Sequence[Any]]
    concurrency: int = 1  # the number of batches that run at the same time


class BaseTranslator(PairScorer):
    """A translator; a subclass provides `_search`, `_scored`, `_tokenizers` and `stream`."""

    max_length: int  # of a source, and of a target, in tokens
    _refusal = (
        "expected a classifier, got a translator; use translate, stream, score or score_tokens."
    )

    @abstractmethod
    def _search(self, request: Request, settings: dict[str, Any]) -> BatchSearch:
        """Check the request and the settings, and return the search for them."""

    def translate(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 64,
        prefixes: Sequence[str | None] | None = None,
        token_scores: bool = False,
        attention: bool = False,
        use_cache: bool = True,
        glossary: "Glossary | Mapping[str, str] | None" = None,
        **settings: float,
    ) -> list[Translation]:
        """Translate texts; see `TranslatorProtocol.translate`."""
        check_texts(texts)
        if glossary is not None:
            options = {
                "batch_size": batch_size,
                "token_scores": token_scores,
                "attention": attention,
                "use_cache": use_cache,
            }
            return translate_with_glossary(self, texts, glossary, prefixes, **options, **settings)
        forced = check_prefixes(prefixes, texts)
        request = Request(len(texts), batch_size, token_scores, attention, use_cache)
        search = self._search(request, settings)
        rows = run_in_batches(texts, batch_size, search.run, forced, concurrency=search.concurrency)

        def add_details(index: int, translation: Translation) -> Translation:
            arrays = rows[index][2:]
            return self._with_details(translation, token_scores, *arrays) if arrays else translation

        try:
            translations = to_translations(
                texts, [row[:2] for row in rows], self.max_length, forced
            )
        except TextError as error:
            error.results = {
                index: add_details(index, translation)
                for index, translation in error.results.items()
            }
            raise
        return [add_details(index, translation) for index, translation in enumerate(translations)]

    def translate_document(
        self,
        text: str,
        format: str = "text",
        *,
        language: str = "en",
        lines: bool = False,
        attention_layer: int | None = None,
        batch_size: int = 64,
        **settings: float,
    ) -> "DocumentTranslation":
        """Translate a document; see `TranslatorProtocol.translate_document`."""
        return translate_document(
            self, text, format, language, lines, attention_layer, batch_size=batch_size, **settings
        )

    def _with_details(
        self,
        translation: Translation,
        token_scores: bool,
        source_ids: np.ndarray,
        ids: np.ndarray,
        log_probs: np.ndarray,
        attention: np.ndarray | None = None,
    ) -> Translation:
        """Add the tokens and the rows of the arrays to each hypothesis."""
        hypotheses = [
            self._tokenizers.explain(
                hypothesis,
                source_ids,
                ids[rank],
                log_probs[rank] if token_scores else None,
                None if attention is None else attention[rank],
            )
            for rank, hypothesis in enumerate(translation.hypotheses)
        ]
        return translation._replace(hypotheses=hypotheses)


def refuse_uncached(use_cache: bool) -> None:
    """Refuse a search without a cache, since exported files contain no uncached decoding step.

    Raises:
        ValueError: if `use_cache` is False.
    """
    if not use_cache:
        raise ValueError(
            "use_cache: expected True, got False; exported files hold only the cached decoding "
            "step. Open the bundle to decode without a cache."
        )
