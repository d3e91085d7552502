"""A translator on any runtime: batches, settings, prefixes, glossaries, documents, scores."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from tfk_transformer.config.search_settings import resolve_settings, setting_arrays
from tfk_transformer.inference.calibration import Calibration, with_confidences
from tfk_transformer.inference.document_translation import translate_document
from tfk_transformer.inference.glossary_translation import translate_with_glossary
from tfk_transformer.inference.runtime import TranslatorRuntime, Workload, are_small
from tfk_transformer.inference.signatures import FUNCTIONS
from tfk_transformer.inference.streaming import stream_text
from tfk_transformer.inference.text_batches import (
    check_prefixes,
    check_texts,
    run_in_batches,
    score_in_batches,
)
from tfk_transformer.inference.text_translation import translate_readable, translate_texts
from tfk_transformer.text.languages import Languages, language_code, language_or_english
from tfk_transformer.text.outcome import refuse_long_texts
from tfk_transformer.text.results import ScoredTarget, Translation, to_hypotheses
from tfk_transformer.text.terms import Glossary

if TYPE_CHECKING:
    from tfk_transformer.formats.documents.results import DocumentTranslation


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
        """Return the code of a language; of None, the source language of the model or English.

        Raises:
            ValueError: if the code is unknown.
        """
        if language is None:
            return language_or_english(self.languages.source)
        return language_code(language)

    def splits_sentences(self, requested: bool | None = None) -> bool:
        """Return whether texts are split into sentences; a prompt never is.

        Args:
            requested: whether the caller wants it. Default: the model's option `split_sentences`.
        """
        splits = self.runtime.split_sentences if requested is None else requested
        return splits and self.runtime.architecture != "decoder"

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
        **settings: float,
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
        forced = check_prefixes(prefixes, texts)
        options: dict[str, Any] = {
            "batch_size": batch_size,
            "token_scores": token_scores,
            "attention": attention,
            "use_cache": use_cache,
            **settings,
        }
        if not self.splits_sentences(split_sentences):
            return self._translate(texts, forced, glossary, **options)
        translate = functools.partial(self._translate_readable, glossary=glossary, **options)
        return translate_texts(
            translate, texts, forced, self._language_code(language), self.max_length
        )

    def _translate_readable(
        self,
        sentences: Sequence[str],
        prefixes: Sequence[str],
        glossary: Glossary | Mapping[str, str] | None = None,
        **options: Any,
    ) -> list[Translation]:
        """Translate sentences; characters that the vocabulary lacks stay unchanged.

        The search must read the terms of a glossary, whose letters the vocabulary may lack.
        """
        terms = glossary.terms if isinstance(glossary, Glossary) else glossary or {}
        return translate_readable(
            functools.partial(self._translate, glossary=glossary, **options),
            sentences,
            prefixes,
            self.runtime.characters,
            self.max_length,
            exempt=frozenset("".join(terms)),
        )

    def _translate(
        self,
        sentences: Sequence[str],
        prefixes: Sequence[str],
        glossary: Glossary | Mapping[str, str] | None = None,
        **options: Any,
    ) -> list[Translation]:
        """Translate sentences exactly as they are."""
        if glossary is None:
            return self._search(sentences, prefixes, **options)
        self.runtime.require("glossary", "translate", "score_ids")
        return translate_with_glossary(
            self._search,
            self.score_tokens,
            self.runtime.tokenizers.target_tokenizer,
            sentences,
            glossary,
            prefixes,
            options,
            self.runtime.rules,
        )

    def _search(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str],
        batch_size: int,
        use_cache: bool,
        token_scores: bool = False,
        attention: bool = False,
        **settings: float,
    ) -> list[Translation]:
        """Translate texts without a glossary."""
        self.runtime.require("translate", "translate")
        runtime = self.runtime if use_cache else self.runtime.without_cache()
        resolved = resolve_settings(settings, runtime.rules)
        scalars = setting_arrays(resolved, runtime.rules)
        small = len(texts) < 2 or are_small(len(texts), batch_size, resolved["beam_size"])
        if token_scores or attention:
            runtime.require("token_scores, attention", "score_ids", "generate")
            workload = Workload(small=small)
            search = functools.partial(_run_with_details, runtime, scalars, attention, workload)
        else:
            workload = Workload(runtime.concurrency(len(texts)), small)
            search = functools.partial(_run_search, runtime, scalars, workload)
        rows = run_in_batches(texts, batch_size, search, prefixes, concurrency=workload.concurrency)
        translations = [
            self._to_translation(text, token_scores, *row)
            for text, row in zip(texts, rows, strict=True)
        ]
        translations = with_confidences(
            translations, prefixes, self.calibration, resolved, runtime.rules
        )
        refuse_long_texts(
            texts,
            translations,
            [translation.score for translation in translations],
            self.max_length,
            "texts, prefixes" if any(prefixes) else "texts",
        )
        return translations

    def _to_translation(
        self,
        text: str,
        token_scores: bool,
        hypotheses: Sequence[str | bytes],
        scores: Sequence[float],
        source_ids: np.ndarray | None = None,
        ids: Sequence[np.ndarray] = (),
        log_probs: Sequence[np.ndarray] = (),
        attention: Sequence[np.ndarray] | None = None,
    ) -> Translation:
        """Return the translation of a text from a row of the search's outputs."""
        results = to_hypotheses(hypotheses, scores)
        if source_ids is not None:
            results = [
                hypothesis._replace(
                    **self.runtime.tokenizers.details(
                        source_ids,
                        ids[rank],
                        log_probs[rank] if token_scores else None,
                        None if attention is None else attention[rank],
                    )._asdict()
                )
                for rank, hypothesis in enumerate(results)
            ]
        return Translation(text, results)

    def translate_document(
        self,
        text: str,
        format: str = "text",
        *,
        language: str | None = None,
        lines: bool = False,
        attention_layer: int | None = None,
        attributes: bool = False,
        target_language: str | None = None,
        batch_size: int = 64,
        **settings: float,
    ) -> "DocumentTranslation":
        """Translate a document sentence by sentence; text between sentences stays unchanged.

        The attention of the decoder to the source determines the position of markup inside a
        sentence. Only sentences with markup, and sentences whose numbers are missing in their
        translation, need the attention. With ONNX, they also need the files that `translate` needs
        for attention. This method requires the extra `documents`.

        Args:
            text: the document.
            format: "text", "markdown" or "html".
            language: the ISO 639 code of the document's language, for splitting into sentences;
                the default is as in `translate`.
            lines: whether each line of a plain text is a paragraph. If False, paragraphs end at
                blank lines.
            attention_layer: the layer of the decoder whose attention places markup; negative
                numbers count from the last layer. None: the mean of all layers.
            attributes: whether the attributes of HTML that people read are translated: `alt`,
                `title`, `placeholder`, `aria-label` and the description of the page.
            target_language: the new value of `lang` of the element `html`. None keeps it.
            batch_size: number of sentences in a batch, which does not change the results.
            **settings: search settings, see `SearchSettings`.

        Raises:
            ValueError: if an argument or a setting is invalid, or the files lack outputs that the
                document needs.
            ImportError: if a package of the extra `documents` is not installed, with the line that
                installs it.
        """
        options: dict[str, Any] = {"use_cache": True, "batch_size": batch_size, **settings}

        def translate(sentences: Sequence[str], attention: bool) -> list[Translation]:
            prefixes = [""] * len(sentences)
            return self._translate_readable(sentences, prefixes, attention=attention, **options)

        return translate_document(
            translate,
            text,
            format,
            self._language_code(language),
            lines,
            attention_layer,
            attributes,
            target_language,
        )

    def stream(
        self,
        text: str,
        *,
        split_sentences: bool | None = None,
        language: str | None = None,
        **settings: float,
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
        self.runtime.require("stream", "decoder_step", "tokenize")
        if self.runtime.architecture != "decoder":
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

        def convert(index: int, log_probability: float, *arrays: np.ndarray) -> float:
            return log_probability

        return np.array(
            self._score(sources, targets, batch_size, attention=False, convert=convert), "float32"
        )

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

        def convert(index: int, log_probability: float, *arrays: np.ndarray) -> ScoredTarget:
            details = self.runtime.tokenizers.details(*arrays)
            return ScoredTarget(targets[index], float(log_probability), **details._asdict())

        return self._score(sources, targets, batch_size, attention, convert)

    def _score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        batch_size: int,
        attention: bool,
        convert: Any,
    ) -> list[Any]:
        """Score pairs, and convert the index and the row of each pair to its result.

        A row has the log-probability, source ids, target ids, token log-probabilities and, if
        requested, attention.
        """
        from tfk_transformer.inference.token_scoring import padded_ids

        self.runtime.require("score, score_tokens", "score_ids")
        tokenizers = self.runtime.tokenizers

        def run(source_texts: Sequence[str], target_texts: Sequence[str]) -> list[np.ndarray]:
            source_ids = padded_ids(tokenizers.source_tokenizer.encode(source_texts))
            target_ids = padded_ids(tokenizers.target_tokenizer.encode(target_texts))
            token_log_probs, log_probability, *weights = _score_ids(
                self.runtime, source_ids, target_ids, attention
            )
            return [log_probability, source_ids, target_ids, token_log_probs, *weights]

        return score_in_batches(sources, targets, batch_size, self.max_length, run, convert)

    def generate(
        self, source_ids: ArrayLike, prefix_ids: ArrayLike | None = None, **settings: float
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
        token_log_probs, log_probability = _score_ids(self.runtime, source, target, attention=False)
        return token_log_probs, log_probability

    def attention(self, source_ids: ArrayLike, target_ids: ArrayLike) -> np.ndarray:
        """Return the attention weights of each target token, float32 (N, L, H, T, S), for the ids
        of `score_ids`.
        """
        self.runtime.require("attention", "attention")
        source, target = _id_pairs(source_ids, target_ids)
        outputs = self.runtime.run("attention", {"source_ids": source, "target_ids": target})
        return np.asarray(outputs["attention"])


def _run_search(
    runtime: TranslatorRuntime,
    scalars: Mapping[str, np.ndarray],
    workload: Workload,
    texts: Sequence[str],
    prefixes: Sequence[str],
) -> list[np.ndarray]:
    """Return the texts of the hypotheses (N, n_best), and their scores (N, n_best)."""
    inputs = {
        "text": np.array(texts, object),
        "prefix": np.array(prefixes if any(prefixes) else [""], object),
        **scalars,
    }
    outputs = runtime.run("translate", inputs, workload)
    return [np.asarray(outputs[name]) for name in ("translations", "scores")]


def _run_with_details(
    runtime: TranslatorRuntime,
    scalars: Mapping[str, np.ndarray],
    attention: bool,
    workload: Workload,
    texts: Sequence[str],
    prefixes: Sequence[str],
) -> list[Any]:
    """Return what `_run_search` returns, and the tokens of the hypotheses with their scores.

    Returns:
        Texts (N, n_best), scores (N, n_best), source ids (N, S), ids (N, n_best, T), token
        log-probabilities (N, n_best, T) and, if requested, attention (N, n_best, L, H, T, S).
    """
    from tfk_transformer.inference.token_scoring import padded_ids

    source_tokenizer, target_tokenizer, _ = runtime.tokenizers
    source_ids = padded_ids(source_tokenizer.encode(texts))
    prefix_ids = padded_ids(target_tokenizer.encode(prefixes))
    outputs = runtime.run(
        "generate", {"source_ids": source_ids, "prefix_ids": prefix_ids, **scalars}, workload
    )
    ids = np.asarray(outputs["ids"])
    count, n_best, length = ids.shape
    rows = ids.reshape(count * n_best, length)
    token_log_probs, _, *weights = _score_ids(
        runtime, np.repeat(source_ids, n_best, axis=0), rows, attention
    )
    details = [
        values.reshape(count, n_best, *values.shape[1:]) for values in (token_log_probs, *weights)
    ]
    hypotheses = np.array(target_tokenizer.decode(rows.tolist()), object)
    return [
        hypotheses.reshape(count, n_best),
        np.asarray(outputs["scores"]),
        source_ids,
        ids,
        *details,
    ]


def _score_ids(
    runtime: TranslatorRuntime, source_ids: np.ndarray, target_ids: np.ndarray, attention: bool
) -> list[np.ndarray]:
    """Return the token log-probabilities (N, T), their sums (N,) and, if requested, attention.

    Raises:
        ValueError: if attention is requested from a model without attention.
    """
    name = "score_and_attend" if attention else "score_ids"
    outputs = runtime.run(name, {"source_ids": source_ids, "target_ids": target_ids})
    if attention and outputs["attention"].shape[2] == 0:
        raise ValueError(
            "attention: expected a model with attention, got a decoder-only model of SSRUs, which "
            "have no attention heads; leave attention out."
        )
    return [np.asarray(outputs[tensor.name]) for tensor in FUNCTIONS[name].outputs]


def _id_pairs(source_ids: ArrayLike, target_ids: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return ids of sources and targets as int32 arrays (N, S) and (N, T).

    Raises:
        ValueError: if they have other shapes.
    """
    source = np.asarray(source_ids, "int32")
    target = np.asarray(target_ids, "int32")
    if source.ndim != 2 or target.ndim != 2 or len(source) != len(target):
        raise ValueError(
            f"source_ids, target_ids: expected shapes (N, S) and (N, T), got {source.shape} and "
            f"{target.shape}."
        )
    return source, target
