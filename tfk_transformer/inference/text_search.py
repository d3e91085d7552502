"""Search and scoring of lists of texts exactly as they are, in batches."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfk_transformer.config.search_settings import resolve_settings, setting_arrays
from tfk_transformer.inference.batches import (
    run_in_batches,
    score_texts,
    search_texts,
    search_with_tokens,
)
from tfk_transformer.inference.runtime import TranslatorRuntime, Workload, are_small
from tfk_transformer.text.calibration import with_confidences
from tfk_transformer.text.outcome import Outcome, Refused, too_long
from tfk_transformer.text.results import ScoredTarget, Translation
from tfk_transformer.text.road import Sentences

# The arguments that need tokens, and the functions of the model that give them.
TOKENS = ("token_scores, attention", "score_ids", "generate")


class TextSearch:
    """The search of one call, whose settings are resolved once; see `BaseTranslator.translate`."""

    terms: frozenset[str] = frozenset()  # characters that a glossary requires: none here

    def __init__(
        self,
        runtime: TranslatorRuntime,
        /,  # a setting of any name is reported as unknown
        *,
        batch_size: int = 64,
        use_cache: bool = True,
        token_scores: bool = False,
        attention: bool = False,
        **settings: Any,
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
            self.runtime.require(*TOKENS)

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
            self.runtime.require(*TOKENS)
            workload = Workload(small=small)
            attention = self._attention or sentences.attention
            search = functools.partial(
                search_with_tokens,
                self.runtime,
                self._scalars,
                workload,
                self._token_scores,
                attention,
            )
        else:
            workload = Workload(self.runtime.concurrency(len(texts)), small)
            search = functools.partial(search_texts, self.runtime, self._scalars, workload)
        rows = run_in_batches(
            texts, self.batch_size, search, prefixes, concurrency=workload.concurrency
        )
        translations = with_confidences(
            [
                Translation(text, hypotheses)
                for text, (hypotheses,) in zip(texts, rows, strict=True)
            ],
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


def score_pairs(
    runtime: TranslatorRuntime,
    sources: Sequence[str],
    targets: Sequence[str],
    batch_size: int,
    attention: bool = False,
) -> list[Outcome[ScoredTarget]]:
    """Return the outcome of scoring each pair of a source and its target."""
    runtime.require("score, score_tokens", "score_ids")

    run = functools.partial(score_texts, runtime, attention)
    rows = run_in_batches(sources, batch_size, run, targets)
    too_long_pair = Refused(
        "texts", f"{long_pair(runtime.max_length)} this pair; split it into sentences."
    )
    return [
        too_long_pair
        if np.isnan(log_probability)
        else ScoredTarget(target, float(log_probability), **runtime.tokenizers.details(*arrays))
        for target, (log_probability, *arrays) in zip(targets, rows, strict=True)
    ]


def long_pair(max_length: int) -> str:
    """Return the problem of a pair that is too long, without its name."""
    return f"expected at most {max_length} tokens per side, got more in"
