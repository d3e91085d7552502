"""Search and scoring of lists of texts exactly as they are, in batches."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tfk_transformer.config.search_settings import resolve_settings, setting_arrays
from tfk_transformer.inference.batches import run_in_batches
from tfk_transformer.inference.runtime import TranslatorRuntime, Workload, are_small
from tfk_transformer.inference.signatures import FUNCTIONS
from tfk_transformer.text.calibration import with_confidences
from tfk_transformer.text.outcome import Outcome, Refused, too_long
from tfk_transformer.text.results import ScoredTarget, Translation, to_hypotheses
from tfk_transformer.text.road import Sentences

Result = TypeVar("Result")
# The arguments that need tokens, and the functions of the model that give them.
TOKENS = ("token_scores, attention", "score_ids", "generate")


class TextSearch:
    """The search of one call, whose settings are resolved once; see `BaseTranslator.translate`.

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
        search: Callable[..., Sequence[Any]]
        if needs_tokens:
            self.runtime.require(*TOKENS)
            workload = Workload(small=small)
            attention = self._attention or sentences.attention
            search = functools.partial(self._search_with_tokens, workload, attention)
        else:
            workload = Workload(self.runtime.concurrency(len(texts)), small)
            search = functools.partial(self._search, workload)
        rows = run_in_batches(
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

    def _search(
        self, workload: Workload, texts: Sequence[str], prefixes: Sequence[str]
    ) -> list[np.ndarray]:
        """Return the texts of the hypotheses (N, n_best), and their scores (N, n_best)."""
        inputs = {
            "text": np.array(texts, object),
            "prefix": np.array(prefixes if any(prefixes) else [""], object),
            **self._scalars,
        }
        outputs = self.runtime.run("translate", inputs, workload)
        return [np.asarray(outputs[name]) for name in ("translations", "scores")]

    def _search_with_tokens(
        self, workload: Workload, attention: bool, texts: Sequence[str], prefixes: Sequence[str]
    ) -> list[Any]:
        """Return the texts and scores of the hypotheses, and their tokens.

        These are source ids (N, S), ids (N, n_best, T), token log-probabilities (N, n_best, T) and,
        if requested, attention (N, n_best, L, H, T, S).
        """
        from tfk_transformer.inference.token_scoring import padded_ids

        source_tokenizer, target_tokenizer, _ = self.runtime.tokenizers
        source_ids = padded_ids(source_tokenizer.encode(texts))
        prefix_ids = padded_ids(target_tokenizer.encode(prefixes))
        inputs = {"source_ids": source_ids, "prefix_ids": prefix_ids, **self._scalars}
        outputs = self.runtime.run("generate", inputs, workload)
        ids = np.asarray(outputs["ids"])
        count, n_best, length = ids.shape
        rows = ids.reshape(count * n_best, length)
        sources = np.repeat(source_ids, n_best, axis=0)
        token_log_probs, _, *weights = score_ids(self.runtime, sources, rows, attention)
        details = [
            values.reshape(count, n_best, *values.shape[1:])
            for values in (token_log_probs, *weights)
        ]
        hypotheses = np.array(target_tokenizer.decode(rows.tolist()), object)
        scores = np.asarray(outputs["scores"])
        return [hypotheses.reshape(count, n_best), scores, source_ids, ids, *details]

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
                    )
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

    def run(sources: Sequence[str], targets: Sequence[str]) -> list[np.ndarray]:
        from tfk_transformer.inference.token_scoring import padded_ids

        source_ids = padded_ids(runtime.tokenizers.source_tokenizer.encode(sources))
        target_ids = padded_ids(runtime.tokenizers.target_tokenizer.encode(targets))
        token_log_probs, log_probability, *weights = score_ids(
            runtime, source_ids, target_ids, attention
        )
        return [log_probability, source_ids, target_ids, token_log_probs, *weights]

    rows = run_in_batches(sources, batch_size, run, targets)
    reason = f"{long_pair(runtime.max_length)} this pair; split it into sentences."
    return [
        Refused("texts", reason) if np.isnan(row[0]) else convert(target, *row)
        for target, row in zip(targets, rows, strict=True)
    ]


def score_ids(
    runtime: TranslatorRuntime, source_ids: np.ndarray, target_ids: np.ndarray, attention: bool
) -> list[np.ndarray]:
    """Return the token log-probabilities (N, T), their sums (N,) and, if requested, attention."""
    name = "score_and_attend" if attention else "score_ids"
    outputs = runtime.run(name, {"source_ids": source_ids, "target_ids": target_ids})
    if attention and outputs["attention"].shape[2] == 0:
        raise ValueError(
            "attention: expected a model with attention, got a decoder-only model of SSRUs, which "
            "have no attention heads; leave attention out."
        )
    return [np.asarray(outputs[tensor.name]) for tensor in FUNCTIONS[name].outputs]


def scored_target(runtime: TranslatorRuntime) -> Callable[..., ScoredTarget]:
    """Return the function that converts a row of scores of `score_pairs`."""

    def convert(target: str, log_probability: float, *arrays: np.ndarray) -> ScoredTarget:
        details = runtime.tokenizers.details(*arrays)
        return ScoredTarget(target, float(log_probability), **details)

    return convert


def long_pair(max_length: int) -> str:
    """Return the problem of a pair that is too long, without its name."""
    return f"expected at most {max_length} tokens per side, got more in"
