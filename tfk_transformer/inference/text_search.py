"""Search and scoring of lists of texts exactly as they are, in batches."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tfk_transformer.config.search_settings import resolve_settings, setting_arrays
from tfk_transformer.inference import batches
from tfk_transformer.inference.runtime import TranslatorRuntime, Workload, are_small
from tfk_transformer.text.calibration import with_confidences
from tfk_transformer.text.outcome import Outcome, Refused, too_long
from tfk_transformer.text.results import ScoredTarget, Translation, to_hypotheses
from tfk_transformer.text.road import Sentences

Result = TypeVar("Result")


class TextSearch:
    """The search of one call, whose settings are resolved once.

    Args:
        runtime: runs the functions of the model.
        settings: search settings, see `SearchSettings`.
        batch_size, use_cache, token_scores, attention: see `BaseTranslator.translate`.

    Raises:
        ValueError: if a setting is invalid, or the files do not contain the requested outputs.
    """

    terms: frozenset[str] = frozenset()  # without a glossary, there are none

    def __init__(
        self,
        runtime: TranslatorRuntime,
        settings: Mapping[str, Any],
        batch_size: int = 64,
        use_cache: bool = True,
        token_scores: bool = False,
        attention: bool = False,
    ) -> None:
        runtime.require("translate", "translate")
        self.runtime = runtime if use_cache else runtime.without_cache()
        self.batch_size = batch_size
        self.requested = settings
        self.settings = resolve_settings(settings, self.runtime.rules)
        self.needs_tokens = token_scores or attention
        self._scalars = setting_arrays(self.settings, self.runtime.rules)
        self._token_scores = token_scores
        self._attention = attention
        if self.needs_tokens:
            self._require_tokens()

    def translate(self, sentences: Sentences) -> list[Outcome[Translation]]:
        """Return the outcome of each text, which is one sentence."""
        return self.translate_with(sentences, self.needs_tokens or sentences.attention)

    def translate_with(
        self, sentences: Sentences, needs_tokens: bool
    ) -> list[Outcome[Translation]]:
        """Return the outcome of each text, whose hypotheses have tokens only if they are needed."""
        texts, prefixes, _ = sentences
        small = len(texts) < 2 or are_small(len(texts), self.batch_size, self.settings["beam_size"])
        if needs_tokens:
            self._require_tokens()
            workload = Workload(small=small)
            attention = self._attention or sentences.attention
            search = functools.partial(
                batches.search_with_tokens,
                self.runtime,
                self._scalars,
                workload,
                attention,
            )
        else:
            workload = Workload(self.runtime.concurrency(len(texts)), small)
            search = functools.partial(batches.search, self.runtime, self._scalars, workload)
        rows = batches.run_in_batches(
            texts, self.batch_size, search, prefixes, concurrency=workload.concurrency
        )
        translations = with_confidences(
            [self._translation(text, *row) for text, row in zip(texts, rows, strict=True)],
            prefixes,
            self.runtime.calibration,
            self.settings,
            self.runtime.rules,
        )
        argument = "texts, prefixes" if any(prefixes) else "texts"
        return [
            too_long(translation.source, self.runtime.max_length, argument)
            if math.isnan(translation.score)
            else translation
            for translation in translations
        ]

    def _require_tokens(self) -> None:
        self.runtime.require("token_scores, attention", "score_ids", "generate")

    def _translation(
        self,
        text: str,
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
                        log_probs[rank] if self._token_scores else None,
                        None if attention is None else attention[rank],
                    )._asdict()
                )
                for rank, hypothesis in enumerate(results)
            ]
        return Translation(text, results)


def score_pairs(
    runtime: TranslatorRuntime,
    sources: Sequence[str],
    targets: Sequence[str],
    batch_size: int,
    convert: Callable[..., Result],
    attention: bool = False,
) -> list[Outcome[Result]]:
    """Return the outcome of scoring each pair of a source and its target."""
    runtime.require("score, score_tokens", "score_ids")
    run = functools.partial(batches.score, runtime, attention)
    rows = batches.run_in_batches(sources, batch_size, run, targets)
    reason = f"{long_pair(runtime.max_length)} this pair; split it into sentences."
    return [
        Refused("texts", reason) if np.isnan(row[0]) else convert(target, *row)
        for target, row in zip(targets, rows, strict=True)
    ]


def scored_target(runtime: TranslatorRuntime) -> Callable[..., ScoredTarget]:
    """Return the function that converts a row of `batches.score` to a scored target."""

    def convert(target: str, log_probability: float, *arrays: np.ndarray) -> ScoredTarget:
        details = runtime.tokenizers.details(*arrays)
        return ScoredTarget(target, float(log_probability), **details._asdict())

    return convert


def long_pair(max_length: int) -> str:
    """Return the problem of a pair that is too long, without its name."""
    return f"expected at most {max_length} tokens per side, got more in"
