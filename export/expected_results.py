"""The probe texts of a model, and the Keras model's results, with which all files are compared."""

import contextlib
import ctypes
import functools
import gc
import itertools
import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sacrebleu

from tfk_transformer.config.search_settings import PENALTY_FORMS, SearchSettings, length_penalty
from tfk_transformer.export import parity
from tfk_transformer.export.parity import Figures, Searched
from tfk_transformer.export.to_saved_model.writer import SharedFunctions, without_graph_optimizer
from tfk_transformer.inference.runtime import ClassifierRuntime, Runtime, TranslatorRuntime
from tfk_transformer.inference.signatures import LOG_PROBABILITY, SCORE_AND_ATTEND
from tfk_transformer.inference.streaming import next_tokens
from tfk_transformer.pipelines.keras_runtime import KerasRuntime
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.results import Translation, decode

Settings = Mapping[str, Any]
Generate = Callable[[np.ndarray, np.ndarray, Settings], Searched]  # takes source and prefix ids
Translate = Callable[..., list[Translation]]  # takes texts, and search settings by name

# Probes in a batch for scoring and for onnxruntime. With all probes in one batch, large models need
# several times the RAM.
PROBE_BATCH_SIZE = 32
PREFIX_LENGTH = 2  # tokens of the forced prefixes
PREFIX_PROBES = 16  # probes that are translated with a forced prefix
LARGE = 20_000_000  # parameters
BEAM_PROBES = 32  # probes of the beam search of a model with more than LARGE parameters
NO_PREFIX = np.zeros((1, 0), "int32")
LOG = logging.getLogger(__name__)


class ExpectedResults:
    """The probe sentences of a translator, and the Keras model's results on them.

    `traced` is an argument of `onnx_models.generate_graph`.
    """

    def __init__(
        self,
        translator: Translator,
        traced: bool = False,
        int8_limits: parity.Int8Limits | None = None,
    ):
        self.translator = translator
        self.int8_limits = int8_limits or parity.Int8Limits()
        self.traced = traced
        tokenizer = translator.source_tokenizer
        # Shared with the SavedModel, so that each function is traced only once.
        self.functions = SharedFunctions(translator.functions)
        self.runtime = KerasRuntime(translator.max_length, lambda: self.functions)
        self.texts = parity.probe_texts(translator.probes, tokenizer)
        self.ids = parity.probe_ids(self.texts, tokenizer, translator.model.config.max_length)
        # Texts that are too long are compared only as ids: the runtimes refuse them as texts.
        lengths = map(len, tokenizer.encode(self.texts))
        self.fitting = [row for row, length in enumerate(lengths) if length < self.ids.shape[1]]
        self.short_texts = [self.texts[row] for row in self.fitting]
        greedy, beam = parity.probe_settings(translator.search)
        self.greedy_settings, self.beam_settings = greedy, beam
        self.is_large = translator.model.count_params() > LARGE
        every = np.arange(len(self.texts))
        # In the beam search of a large model, each probe takes seconds.
        self.beam_rows = every[:BEAM_PROBES] if self.is_large else every
        self.greedy_search = self.generate(self.ids, NO_PREFIX, greedy)
        self.beam_search = self.generate(self.ids[self.beam_rows], NO_PREFIX, beam)
        # Ids (N, T) of the best hypotheses: of greedy search, and of beam search where it ran.
        self.greedy = self.greedy_search[0][:, 0]
        ids, beam_ids = parity.pad_to_longest([self.greedy_search[0], self.beam_search[0]])
        self.best = ids[:, 0]
        self.best[self.beam_rows] = beam_ids[:, 0]
        # Further greedy searches: rows, forced prefixes, and results. The prefix of each probe is
        # the beginning of another probe's translation.
        prefix = np.roll(self.best[:PREFIX_PROBES, :PREFIX_LENGTH], 1, axis=0)
        too_long = np.setdiff1d(every, self.fitting)
        self.more_searches = [
            (rows, prefix_ids, self.generate(self.ids[rows], prefix_ids, greedy))
            for rows, prefix_ids in ((every[:PREFIX_PROBES], prefix), (too_long, NO_PREFIX))
            if rows.size
        ]
        # With oneDNN, Grappler fuses products and masks of full passes, which takes three times as
        # long.
        with without_graph_optimizer():
            self.scores = self._scores(self.runtime)
        beam_fitting = [row for row in self.fitting if row in self.beam_rows]
        # Rows whose 8-bit translations are judged: texts of random pieces have no good ones.
        own = [row for row in beam_fitting if row < len(translator.probes)]
        self.int8_rows = own or beam_fitting
        settings = [{**greedy, "probes": len(every)}, {**beam, "probes": len(self.beam_rows)}]
        self.agreed: Figures = {"sentences": len(self.texts), "settings": settings, "ids": "equal"}

    def check(
        self,
        name: str,
        open_texts: Callable[[], Translate],
        open_ids: Callable[[], Generate],
        open_scores: Callable[[], TranslatorRuntime],
    ) -> Figures:
        """Compare all results of an artifact with the model's, and return the parity figures.

        One file is open at a time, since each holds the weights once or twice.
        """
        text_difference = self.check_texts(name, open_texts())
        self.collect_garbage()
        ids = self.check_ids(name, open_ids())
        self.collect_garbage()
        LOG.info("compare %s with the Keras model: log-probabilities", name)
        with without_graph_optimizer():
            scores = parity.check_scores(name, self.scores, self._scores(open_scores()))
        largest = max(text_difference, ids["largest_score_difference"])
        return {**ids, **scores, "largest_score_difference": largest}

    def check_texts(self, name: str, translate: Translate) -> float:
        """Compare greedy translations of texts; return the largest difference between scores."""
        LOG.info("compare %s with the Keras model: translations of texts", name)
        ids, scores = (part[self.fitting, 0] for part in self.greedy_search)
        expected = self.translator.target_tokenizer.decode(ids.tolist())
        translations = translate(self.short_texts, **self.greedy_settings)
        texts = [translation.text for translation in translations]
        parity.compare_texts(name, "translations", self.short_texts, expected, texts)
        text_scores = np.array([translation.score for translation in translations])
        what = f"scores of {len(scores)} probe translations"
        return parity.check_difference(name, what, scores, text_scores)

    def check_ids(self, name: str, generate: Generate) -> Figures:
        """Compare translations of ids, without ties and the greedy ones of `check_texts`."""
        LOG.info("compare %s with the Keras model: translations of ids", name)
        expected = self.beam_search
        with self.first_runs():
            results = generate(self.ids[self.beam_rows], NO_PREFIX, self.beam_settings)
        ties: list[int] = []
        if expected[1].shape == results[1].shape:
            different = parity.different_rows(expected[0], results[0])
            is_tie = functools.partial(self._is_tie, generate, results)
            ties = list(itertools.takewhile(is_tie, different))
            expected, results = (parity.without_rows(part, ties) for part in (expected, results))
        differences = [parity.compare_ids(name, expected, results)]
        for rows, prefix_ids, expected in self.more_searches:
            with self.first_runs():
                results = generate(self.ids[rows], prefix_ids, self.greedy_settings)
            differences.append(parity.compare_ids(name, expected, results))
        if ties:
            LOG.info("%s: rounding decides between hypotheses of %d probes", name, len(ties))
        return {"largest_score_difference": max(differences), "ties": len(ties)}

    def _is_tie(self, generate: Generate, results: Searched, row: int) -> bool:
        """Return whether only rounding makes two beam searches differ in the row of a source.

        The model and an artifact add the same numbers, in orders that also depend on the batch. Of
        two hypotheses with equal scores, one search can therefore drop the first and the other one
        the second, and later the scores differ. Two searches differ only by rounding if their
        hypotheses have equal scores where they differ for the first time. This is shown for the
        source alone, unless the model already gives the artifact's translation then.
        """
        source_ids = self.ids[self.beam_rows[[row]]]
        ids, scores = (part[[row]] for part in results)
        model_ids, model_scores = self.generate(source_ids, NO_PREFIX, self.beam_settings)
        if not parity.different_rows(model_ids, ids).size:
            return parity.scores_agree(model_scores, scores)
        settings = SearchSettings(**self.beam_settings)
        # Without this, a wrong token could have the score of the right one.
        sources = np.repeat(source_ids, len(ids[0]), axis=0)
        if not parity.scores_agree(self._score_hypotheses(sources, ids[0], settings), scores[0]):
            return False
        for length in range(1, self.best.shape[1] + 1):
            # A search that ends at this length returns the hypotheses after this step.
            limits = {"min_length": min(settings.min_length, length), "max_length": length}
            step = {**self.beam_settings, "n_best": settings.beam_size, **limits}
            with self.first_runs():
                ids, scores = generate(source_ids, NO_PREFIX, step)
            model_ids, model_scores = self.generate(source_ids, NO_PREFIX, step)
            if parity.different_rows(model_ids, ids).size:
                return parity.scores_agree(model_scores, scores)
        return False

    def _score_hypotheses(
        self, source_ids: np.ndarray, target_ids: np.ndarray, settings: SearchSettings
    ) -> np.ndarray:
        """Return the model's scores (n,) of hypotheses (n, T) of sources (n, S)."""
        count = math.ceil(len(target_ids) / PROBE_BATCH_SIZE) or 1
        batches = (np.array_split(ids, count) for ids in (source_ids, target_ids))
        outputs = [
            self.runtime.run("score_and_attend", {"source_ids": sources, "target_ids": targets})
            for sources, targets in zip(*batches, strict=True)
        ]
        log_probs = np.concatenate([each[LOG_PROBABILITY.name] for each in outputs])
        return np.asarray(log_probs / _penalties(target_ids, settings))

    def int8_figures(self, rows: Sequence[int], ids: np.ndarray) -> Figures:
        """Return how far 8-bit translations, ids (n, T), are from the model's, ids of these rows.

        The regret is the mean loss of score under the model, per token of its own translation. It
        is 0 for another translation that is as good. With the search's length penalty, neither
        short nor long translations are favored.
        """
        settings = SearchSettings(**self.beam_settings)
        own = self.best[rows]
        with without_graph_optimizer():
            own_scores, scores = (
                self._score_hypotheses(self.ids[rows], each, settings) for each in (own, ids)
            )
        penalties = _penalties(own, settings) / np.maximum(1, np.count_nonzero(own, axis=1))
        decode = self.translator.target_tokenizer.decode
        # BLEU over words would be 0 for translations of fewer than four words.
        bleu = sacrebleu.corpus_bleu(decode(ids.tolist()), [decode(own.tolist())], tokenize="char")
        return {
            "sentences": len(rows),
            "regret_per_token": float(np.mean((own_scores - scores) * penalties)),
            "same_translations": len(rows)
            - len(parity.different_rows(own[:, np.newaxis], ids[:, np.newaxis])),
            "bleu_with_the_model": bleu.score,
        }

    def check_steps(self, name: str, runtime: TranslatorRuntime) -> None:
        """Compare the tokens of an artifact's decoding steps with the model's greedy search."""
        LOG.info("compare %s with the Keras model: decoding steps", name)
        settings = SearchSettings(**self.greedy_settings).as_arrays()
        with self.first_runs():
            tokens = np.stack(list(next_tokens(runtime, self.ids, settings)), axis=1)  # (N, T)
        parity.check_tokens(name, self.greedy, tokens)

    def generate(self, ids: np.ndarray, prefix_ids: np.ndarray, settings: Settings) -> Searched:
        """Translate ids with the model; return ids and scores."""
        with self.first_runs():
            return run_search(self.runtime, ids, settings, prefix_ids)

    def first_runs(self) -> contextlib.AbstractContextManager[None]:
        """Return a context without Grappler, which takes as long as a small model's search."""
        return without_graph_optimizer(self.is_large)

    def collect_garbage(self) -> None:
        """Free the memory of a large model's closed files, whose objects are in cycles."""
        if self.is_large:
            gc.collect()
            # glibc keeps what onnxruntime has freed, a gigabyte for a file of 300 MB.
            if sys.platform == "linux":
                trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc only
                if trim:
                    trim(0)

    def _scores(self, runtime: Runtime) -> list[list[np.ndarray]]:
        """Return all scores of the best hypotheses, in batches of similar length."""
        names = [tensor.name for tensor in SCORE_AND_ATTEND.outputs]
        lengths = np.count_nonzero(self.best, axis=1)
        batches = np.array_split(np.argsort(lengths), math.ceil(len(lengths) / PROBE_BATCH_SIZE))
        results = []
        for batch in batches:
            target_ids = self.best[batch, : max(1, lengths[batch].max())]
            inputs = {"source_ids": self.ids[batch], "target_ids": target_ids}
            outputs = runtime.run("score_and_attend", inputs)
            results.append([np.asarray(outputs[name]) for name in names])
        return results


def _penalties(target_ids: np.ndarray, settings: SearchSettings) -> np.ndarray:
    """Return the length penalties (n,) of hypotheses (n, T)."""
    lengths = np.maximum(1, np.count_nonzero(target_ids, axis=1))
    form = PENALTY_FORMS[settings.length_penalty_form]
    return np.asarray(length_penalty(lengths, settings.length_penalty, form))


def run_search(
    runtime: Runtime, ids: np.ndarray, settings: Settings, prefix_ids: np.ndarray = NO_PREFIX
) -> Searched:
    """Search with these settings, and return the ids and the scores of the translations."""
    scalars = SearchSettings(**settings).as_arrays()
    outputs = runtime.run("generate", {"source_ids": ids, "prefix_ids": prefix_ids, **scalars})
    return np.array(outputs["ids"]), np.array(outputs["scores"])


class ExpectedLabels:
    """The probe texts of a classifier, and the Keras model's labels and probabilities of them."""

    def __init__(self, classifier: TextClassifier, traced: bool = False):
        self.traced = traced
        tokenizer = classifier.tokenizer
        self.texts = parity.probe_texts(classifier.probes, tokenizer)
        self.ids = parity.probe_ids(self.texts, tokenizer, classifier.model.config.max_length)
        self.agreed: Figures = {"sentences": len(self.texts), "labels": "equal"}
        self.labels, *self.probabilities = self._run(classifier.runtime)

    def check(self, name: str, runtime: ClassifierRuntime) -> Figures:
        """Compare an artifact's results with the model's, and return the parity figures."""
        labels, *probabilities = self._run(runtime)
        parity.compare_texts(name, "labels", self.texts, self.labels, labels)
        what = f"probabilities of {len(self.texts)} probe texts"
        differences = [
            parity.check_difference(name, what, *pair, parity.PROBABILITY_TOLERANCE)
            for pair in zip(self.probabilities, probabilities, strict=True)
        ]
        return {"largest_probability_difference": max(differences)}

    def _run(self, runtime: ClassifierRuntime) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Return the predicted labels, their probabilities (N,), and all probabilities (N, C)."""
        outputs = runtime.run("classify", {"text": np.array(self.texts, object)})
        over_ids = runtime.run("probabilities", {"source_ids": self.ids})
        return (
            [decode(label) for label in np.asarray(outputs["label"])],
            np.asarray(outputs["probability"]),
            np.asarray(over_ids["probabilities"]),
        )
