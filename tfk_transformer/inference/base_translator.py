"""A translator on any runtime: batches, settings, prefixes, glossaries, documents, scores."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from tfk_transformer.config.search_settings import SearchOptions, resolve_settings, setting_arrays
from tfk_transformer.inference.batches import score_ids
from tfk_transformer.inference.conveyor import Search, document_road, text_road, translate_sentences
from tfk_transformer.inference.glossary_search import GlossarySearch
from tfk_transformer.inference.runtime import TranslatorRuntime
from tfk_transformer.inference.streaming import stream_text
from tfk_transformer.inference.text_search import TextSearch, long_pair, score_pairs
from tfk_transformer.text.calibration import Calibration
from tfk_transformer.text.glossary import Glossary
from tfk_transformer.text.languages import Languages, language_code, language_or_english
from tfk_transformer.text.outcome import (
    Outcome,
    check_texts,
    forced_beginnings,
    long_texts,
    outcomes_of_valid,
    results_of,
)
from tfk_transformer.text.results import DocumentTranslation, ScoredTarget, Translation
from tfk_transformer.text.road import Sentences, drive


class BaseTranslator:
    """A translator on any runtime.

    The subclasses `Translator`, `SavedModelTranslator` and `OnnxTranslator` open bundles and
    exported files. A decoder-only model "translates" a prompt to its continuation.

    Args:
        runtime: runs the functions of the model.
    """

    def __init__(self, runtime: TranslatorRuntime) -> None:
        self.runtime = runtime

    @property
    def max_length(self) -> int:
        """The model's limit in tokens, of a source and of a target."""
        return self.runtime.max_length

    @property
    def languages(self) -> Languages:
        """The codes of the model's source and target language, such as "de"; None: unknown."""
        return self.runtime.languages

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of the confidences of translations; None: they have no confidence."""
        return self.runtime.calibration

    def _language_code(self, language: str | None) -> str:
        """Return the code of a language; of None, the source language of the model or English."""
        if language is None:
            return language_or_english(self.languages.source)
        return language_code(language)

    def splits_sentences(self, requested: bool | None = None) -> bool:
        """Return whether texts are split into sentences; a prompt never is.

        Args:
            requested: whether the caller wants it. Default: the model's option `split_sentences`.
        """
        splits = self.runtime.split_sentences if requested is None else requested
        return splits and self.runtime.has_encoder

    def translate(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 64,
        prefixes: Sequence[str | None] | None = None,
        token_scores: bool = False,
        attention: bool = False,
        use_cache: bool = True,
        glossary: Glossary | Mapping[str, str] | None = None,
        split_sentences: bool | None = None,
        language: str | None = None,
        **settings: Unpack[SearchOptions],
    ) -> list[Translation]:
        """Translate texts of any number of sentences and any length.

        The sentences of a text are translated separately, and joined with the text's own whitespace
        and line breaks. A sentence that is too long for the model is translated in parts.
        Characters that the source vocabulary lacks, and sentences without letters and numbers, stay
        unchanged. A prompt of a decoder-only model is not split.

        Args:
            texts: the source texts. A blank text has a blank translation with score 0.
            batch_size: number of sentences in a batch, which does not change the results.
            prefixes: the forced beginning of each text's translations; None or "" forces nothing.
                Prefixes count neither in scores nor in length limits.
            token_scores: whether hypotheses have `tokens` and `token_log_probs`. With several
                sentences, the hypotheses of `Translation.sentences` have them.
            attention: whether hypotheses have `tokens` and `attention`: for each token, the
                attention of every layer and head of the decoder to the source, or in a decoder-only
                model to all earlier tokens. With several sentences, as for `token_scores`.
            use_cache: whether each decoding step computes only the last position and reads the keys
                and values of earlier positions from a cache. False recomputes all positions, which
                is slower and gives the same results except for rounding. Exported files contain
                only the cached step and refuse False.
            glossary: the required translation of each source term. If a text contains a term, its
                translation contains the term's translation. If the search result lacks a required
                translation, the method tries it at every position, and returns the most probable
                result. With ONNX this needs `score.onnx` next to the file. See docs/glossary.md.
            split_sentences: whether texts are split. If False, each text is one sentence, exactly
                as it is. Default: the model's option `split_sentences`.
            language: the ISO 639 code of the texts' language, for the ends of sentences. Default:
                the model's source language, or English if it is unknown.
            **settings: search settings, see `SearchSettings`.

        Returns:
            One translation for each text, in the order of `texts`.

        Raises:
            ValueError: if a prefix or, without splitting, a text is too long for the model, a
                setting is invalid, or the files do not contain the requested outputs.
        """
        check_texts(texts)
        forced = forced_beginnings(prefixes, texts)
        check_texts(forced, "prefixes")
        search = self.prepare_search(
            batch_size=batch_size,
            token_scores=token_scores,
            attention=attention,
            use_cache=use_cache,
            glossary=glossary,
            **settings,
        )
        outcomes = self._outcomes(search, texts, forced, split_sentences, language)
        return results_of(outcomes, lambda refused: long_texts(texts, refused, self.max_length))

    def try_translate(
        self,
        texts: Sequence[str],
        *,
        prefixes: Sequence[str | None] | None = None,
        split_sentences: bool | None = None,
        language: str | None = None,
        **options: Any,
    ) -> list[Outcome[Translation]]:
        """Translate texts as `translate` does; a text that cannot be translated is `Refused`.

        Raises:
            ValueError: if a setting is invalid, or the files do not contain the requested outputs.
        """
        search = self.prepare_search(**options)
        return outcomes_of_valid(
            lambda texts, forced: self._outcomes(search, texts, forced, split_sentences, language),
            {"texts": texts, "prefixes": forced_beginnings(prefixes, texts)},
        )

    def prepare_search(
        self, *, glossary: Glossary | Mapping[str, str] | None = None, **options: Any
    ) -> Search:
        """Return the search of one call; see `translate` for the options."""
        search = TextSearch(self.runtime, **options)
        return search if glossary is None else GlossarySearch(search, glossary)

    def _outcomes(
        self,
        search: Search,
        texts: Sequence[str],
        prefixes: Sequence[str],
        split_sentences: bool | None,
        language: str | None,
    ) -> Sequence[Outcome[Translation]]:
        if not self.splits_sentences(split_sentences):
            return search.translate(Sentences(list(texts), list(prefixes)))
        road = text_road(texts, prefixes, self._language_code(language), self.max_length)
        return drive(road, lambda sentences: translate_sentences(search, sentences))

    def translate_document(
        self,
        text: str | bytes,
        format: str = "text",
        *,
        language: str | None = None,
        lines: bool = False,
        attention_layer: int | None = None,
        attributes: bool = False,
        target_language: str | None = None,
        front_matter: Sequence[str] = (),
        fields: Sequence[str] = (),
        batch_size: int = 64,
        **settings: Unpack[SearchOptions],
    ) -> DocumentTranslation:
        """Translate a document sentence by sentence; text between sentences stays unchanged.

        The attention of the decoder to the source determines the position of markup inside a
        sentence. Only sentences with markup, and sentences whose numbers are missing in their
        translation, need the attention. With ONNX, they also need the files that `translate` needs
        for attention. This method requires the extra `documents`.

        Args:
            text: the document; the bytes of a file of Word or EPUB.
            format: "text", "markdown", "mdx", "html", "subtitles", "docx", "epub", "po", "xliff",
                "json", "arb" or "csv". The translation of "docx" and "epub" is `data` of the
                result.
            language: the ISO 639 code of the document's language, for splitting into sentences;
                the default is as in `translate`.
            lines: whether each line of a plain text is a paragraph. If False, paragraphs end at
                blank lines.
            attention_layer: the layer of the decoder whose attention places markup; negative
                numbers count from the last layer. None: the mean of all layers.
            attributes: whether the attributes of HTML that people read are translated: `alt`,
                `title`, `placeholder`, `aria-label` and the description of the page.
            target_language: the new value of `lang` of the element `html`, or of the language in a
                PO, XLIFF or ARB file. None keeps it.
            front_matter: the keys of front matter, in YAML or TOML, whose values are translated,
                such as `("title", "description")`.
            fields: the columns of a table to translate: their names in its first row, or their
                numbers from 1 in a table without names.
            batch_size: number of sentences in a batch, which does not change the results.
            **settings: search settings, see `SearchSettings`.

        Raises:
            ValueError: if an argument or a setting is invalid, or the files lack outputs that the
                document needs.
            ImportError: if a package of the extra `documents` is not installed, with the line that
                installs it.
        """
        options: dict[str, Any] = {"batch_size": batch_size, **settings}
        search = self.prepare_search(**options)
        road = document_road(
            text,
            format,
            self._language_code(language),
            self.max_length,
            lines=lines,
            attention_layer=attention_layer,
            attributes=attributes,
            target_language=target_language,
            front_matter=front_matter,
            fields=fields,
        )
        return drive(road, lambda sentences: translate_sentences(search, sentences))

    def stream(
        self,
        text: str,
        *,
        split_sentences: bool | None = None,
        language: str | None = None,
        **settings: Unpack[SearchOptions],
    ) -> Iterator[str]:
        """Translate one text and yield parts of its translation while they are decoded.

        Together, the parts are the text that `translate` returns with `beam_size=1`, greedy or
        sampled with a `temperature`. With ONNX this needs the files of the format onnx_steps.

        Args:
            text: the source text. A blank text has a blank translation.
            split_sentences: whether the text is split into sentences, as in `translate`.
            language: the ISO 639 code of the text's language; see `translate`.
            **settings: search settings, see `SearchSettings`. `beam_size` must be 1.

        Raises:
            ValueError: before the first part, if without splitting the text is too long for the
                model, a setting is invalid, or `beam_size` is not 1.
        """
        steps = self.stream_steps(
            text, split_sentences=split_sentences, language=language, **settings
        )
        return (part for part in steps if part)

    def stream_steps(
        self,
        text: str,
        *,
        split_sentences: bool | None = None,
        language: str | None = None,
        **settings: Unpack[SearchOptions],
    ) -> Iterator[str]:
        """Stream as `stream` does, with an empty part after each step that gives no text.

        The work ends when the caller asks for no more parts.
        """
        self.runtime.require("stream", "decoder_step", "tokenize")
        if self.runtime.has_encoder:
            self.runtime.require("stream", "encode")
        rules = self.runtime.rules
        resolved = resolve_settings({"beam_size": 1, "n_best": 1, **settings}, rules)
        splits = self.splits_sentences(split_sentences)
        scalars = setting_arrays(resolved, rules)
        code = self._language_code(language) if splits else None
        return stream_text(self.runtime, text, scalars, code)

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64
    ) -> np.ndarray:
        """Return the log-probability of each target given its source, float32 (N,).

        The log-probabilities come from one full masked pass. With ONNX this needs `score.onnx`.

        Args:
            sources: the source texts.
            targets: one translation of each source.
            batch_size: number of pairs in a batch, which does not change the results.

        Raises:
            ValueError: if the numbers of sources and targets differ, or a text is too long for the
                model.
        """
        scored = self.score_tokens(sources, targets, batch_size=batch_size)
        return np.array([target.log_probability for target in scored], "float32")

    def score_tokens(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        batch_size: int = 64,
        attention: bool = False,
    ) -> list[ScoredTarget]:
        """Score pairs as `score` does, and also return the log-probability of each token.

        Args:
            sources: the source texts.
            targets: one translation of each source.
            batch_size: number of pairs in a batch, which does not change the results.
            attention: whether the results have `attention`.

        Raises:
            ValueError: if the numbers of sources and targets differ, a text is too long for the
                model, or the files do not contain the requested outputs.
        """
        self.runtime.require("score, score_tokens", "score_ids")
        check_texts(sources, "sources")
        check_texts(targets, "targets")
        _check_pairs(sources, targets)
        return results_of(
            score_pairs(self.runtime, sources, targets, batch_size, attention),
            lambda refused: f"{long_pair(self.max_length)} pair number {refused[0] + 1}.",
        )

    def try_score_tokens(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64
    ) -> list[Outcome[ScoredTarget]]:
        """Score pairs as `score_tokens` does; a pair that cannot be scored is `Refused`.

        Raises:
            ValueError: if the numbers of sources and targets differ, or the files do not score.
        """
        _check_pairs(sources, targets)
        return outcomes_of_valid(
            lambda sources, targets: score_pairs(self.runtime, sources, targets, batch_size),
            {"sources": sources, "targets": targets},
        )

    def generate(
        self,
        source_ids: ArrayLike,
        prefix_ids: ArrayLike | None = None,
        **settings: Unpack[SearchOptions],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Translate ids.

        Args:
            source_ids: integers (N, S), tokens and end token, padded with 0.
            prefix_ids: integers (N, P), or (1, P) for all sources: tokens that translations begin
                with, padded with 0.
            **settings: search settings, see `SearchSettings`.

        Returns:
            int32 ids (N, n_best, T) and float32 scores (N, n_best).

        Raises:
            ValueError: if the ids are not integers (N, S), a setting is invalid, or the files do
                not translate ids.
        """
        ids = np.asarray(source_ids)
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise ValueError(
                f"source_ids: expected whole numbers (N, S), got {ids.dtype} {ids.shape}."
            )
        self.runtime.require("generate", "generate")
        rules = self.runtime.rules
        scalars = setting_arrays(resolve_settings(settings, rules), rules)
        prefixes = np.zeros((1, 0), "int32") if prefix_ids is None else prefix_ids
        inputs = {
            "source_ids": ids.astype("int32"),
            "prefix_ids": np.asarray(prefixes, "int32"),
            **scalars,
        }
        outputs = self.runtime.run("generate", inputs)
        return np.asarray(outputs["ids"]), np.asarray(outputs["scores"])

    def score_ids(
        self, source_ids: ArrayLike, target_ids: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """Score pairs of ids.

        Args:
            source_ids: integers (N, S), tokens and end token, padded with 0.
            target_ids: integers (N, T), in the same form.

        Returns:
            The log-probability of each token, float32 (N, T), 0 at padding, and their sums (N,).
            They are NaN where a source or a target is too long.

        Raises:
            ValueError: if the ids have other shapes, or the files do not score.
        """
        self.runtime.require("score_ids", "score_ids")
        source, target = _id_pairs(source_ids, target_ids)
        token_log_probs, log_probability = score_ids(self.runtime, source, target, attention=False)
        return token_log_probs, log_probability

    def attention(self, source_ids: ArrayLike, target_ids: ArrayLike) -> np.ndarray:
        """Return the attention of target tokens, float32 (N, L, H, T, S); see `score_ids`."""
        self.runtime.require("attention", "attention")
        source, target = _id_pairs(source_ids, target_ids)
        outputs = self.runtime.run("attention", {"source_ids": source, "target_ids": target})
        return np.asarray(outputs["attention"])


def _check_pairs(sources: Sequence[str], targets: Sequence[str]) -> None:
    if len(sources) != len(targets):
        raise ValueError(
            f"targets: expected a target for each of {len(sources)} sources, got {len(targets)}."
        )


def _id_pairs(source_ids: ArrayLike, target_ids: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return ids of sources and targets as int32 arrays (N, S) and (N, T)."""
    source = np.asarray(source_ids, "int32")
    target = np.asarray(target_ids, "int32")
    if source.ndim != 2 or target.ndim != 2 or len(source) != len(target):
        raise ValueError(
            f"source_ids, target_ids: expected shapes (N, S) and (N, T), got {source.shape} and "
            f"{target.shape}."
        )
    return source, target
