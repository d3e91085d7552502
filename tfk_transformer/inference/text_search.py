"""Search and scoring of lists of texts exactly as they are, in batches."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfk_transformer.config.search_settings import resolve_settings, setting_arrays
from tfk_transformer.inference.batches import run_in_batches, score_ids
from tfk_transformer.inference.runtime import TranslatorRuntime, Workload, are_small
from tfk_transformer.text.alignment import Hypothesis
from tfk_transformer.text.calibration import with_confidences
from tfk_transformer.text.outcome import Outcome, Refused, too_long
from tfk_transformer.text.results import ScoredTarget, Translation, to_hypotheses
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
            search = functools.partial(self._search_with_tokens, workload, attention)
        else:
            workload = Workload(self.runtime.concurrency(len(texts)), small)
            search = functools.partial(self._search_texts, workload)
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

    def _search_texts(
        self, workload: Workload, texts: Sequence[str], prefixes: Sequence[str]
    ) -> list[list[list[Hypothesis]]]:
        """Return one column for `run_in_batches`: the hypotheses of each text."""
        inputs = {
            "text": np.array(texts, object),
            "prefix": np.array(prefixes if any(prefixes) else [""], object),
            **self._scalars,
        }
        outputs = self.runtime.run("translate", inputs, workload)
        results = (np.asarray(outputs[name]) for name in ("translations", "scores"))
        return [list(map(to_hypotheses, *results))]

    def _search_with_tokens(
        self, workload: Workload, attention: bool, texts: Sequence[str], prefixes: Sequence[str]
    ) -> list[list[list[Hypothesis]]]:
        """Return the same as `_search_texts`, with tokens."""
        from tfk_transformer.inference.token_scoring import padded_ids

        source_tokenizer, target_tokenizer, _ = self.runtime.tokenizers
        source_ids = padded_ids(source_tokenizer.encode(texts))
        prefix_ids = padded_ids(target_tokenizer.encode(prefixes))
        inputs = {"source_ids": source_ids, "prefix_ids": prefix_ids, **self._scalars}
        outputs = self.runtime.run("generate", inputs, workload)
        ids = np.asarray(outputs["ids"])
        count, n_best, length = ids.shape
        rows = ids.reshape(count * n_best, length)  # of which each has a source
        sources = np.repeat(source_ids, n_best, axis=0)
        log_probs, _, *weights = score_ids(self.runtime, sources, rows, attention)
        decoded = target_tokenizer.decode(rows.tolist())
        results = []
        for index, scores in enumerate(np.asarray(outputs["scores"])):
            first = index * n_best
            hypotheses = to_hypotheses(decoded[first : first + n_best], scores)
            detailed = []
            for row, hypothesis in enumerate(hypotheses, first):
                details = self.runtime.tokenizers.details(
                    sources[row],
                    rows[row],
                    log_probs[row] if self._token_scores else None,
                    weights[0][row] if attention else None,
                )
                detailed.append(hypothesis._replace(**details))
            results.append(detailed)
        return [results]


def score_pairs(
    runtime: TranslatorRuntime,
    sources: Sequence[str],
    targets: Sequence[str],
    batch_size: int,
    attention: bool = False,
) -> list[Outcome[ScoredTarget]]:
    """Return the outcome of scoring each pair of a source and its target."""
    runtime.require("score, score_tokens", "score_ids")
    from tfk_transformer.inference.token_scoring import padded_ids

    def run(sources: Sequence[str], targets: Sequence[str]) -> list[np.ndarray]:
        """Return columns: log-probabilities, and the arguments of `details`."""
        source_ids = padded_ids(runtime.tokenizers.source_tokenizer.encode(sources))
        target_ids = padded_ids(runtime.tokenizers.target_tokenizer.encode(targets))
        token_log_probs, log_probability, *weights = score_ids(
            runtime, source_ids, target_ids, attention
        )
        return [log_probability, source_ids, target_ids, token_log_probs, *weights]

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
