"""The probe sentences of a translator, and the Keras model's results on them. Every exported file
is compared with these results.
"""

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import PAD_ID
from tfk_transformer.export import parity
from tfk_transformer.export.functions import signature_function
from tfk_transformer.export.parity import Figures, Searched
from tfk_transformer.export.signatures import GENERATE, SCORE_AND_ATTEND
from tfk_transformer.export.to_saved_model.shared_functions import (
    SharedFunctions,
    without_graph_optimizer,
)
from tfk_transformer.inference.streaming import StepModel, next_tokens
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.results import Translation

Settings = Mapping[str, Any]
# From source ids, prefix ids and settings.
Generate = Callable[[np.ndarray, np.ndarray, Settings], Searched]
Score = Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]]  # from source ids and target ids
Translate = Callable[..., list[Translation]]  # from texts, with search settings

# The number of probes in a batch for scoring and for onnxruntime. With all probes in one batch,
# large models need several times the RAM.
PROBE_BATCH_SIZE = 32
PREFIX_LENGTH = 2  # tokens of the forced prefixes
PREFIX_PROBES = 16  # probes that are translated with a forced prefix
LARGE = 20_000_000  # parameters
BEAM_PROBES = 32  # probes of the beam search of a model with more than LARGE parameters
NO_PREFIX = np.zeros((1, 0), "int32")
LOG = logging.getLogger(__name__)


class ProbeSearch(NamedTuple):
    """A search of the Keras model over some of the probes."""

    rows: np.ndarray  # the indices of the probes
    prefix_ids: np.ndarray  # forced prefixes, int32 (rows, P), or (1, 0) for none
    settings: Settings
    searched: Searched


class ExpectedResults:
    """The probe sentences, and the Keras model's results on them.

    The results are translations under each of `parity.PROBE_SETTINGS` and with a forced prefix, and
    the scores of the translations. Greedy search and scoring run on all probes, and the search with
    a forced prefix on `PREFIX_PROBES` of them. The beam search of a model with more than `LARGE`
    parameters runs on `BEAM_PROBES`, since each probe takes seconds.
    """

    def __init__(self, translator: Translator):
        self.translator = translator
        tokenizer = translator.source_tokenizer
        # The SavedModel has the same functions: each function is traced once.
        self.functions = SharedFunctions(translator.functions)
        self.texts = parity.probe_texts(translator.probes, tokenizer)
        self.ids = parity.probe_ids(self.texts, tokenizer, translator.model.config.max_length)
        # Texts that are too long are compared over ids only: the runtimes refuse them.
        lengths = map(len, tokenizer.encode(self.texts))
        self.fitting = [row for row, length in enumerate(lengths) if length < self.ids.shape[1]]
        self.short_texts = [self.texts[row] for row in self.fitting]
        greedy, beam = parity.PROBE_SETTINGS
        every = np.arange(len(self.texts))
        self.beam_rows = every[:BEAM_PROBES] if translator.model.count_params() > LARGE else every
        self.searches = [self._search(every, greedy), self._search(self.beam_rows, beam)]
        # The best hypotheses' ids (N, T): the greedy ones, and the beam search's where it ran.
        self.greedy = self._best_hypotheses(self.searches[:1])
        self.best = self._best_hypotheses(self.searches)
        # The prefix of each probe is the beginning of another probe's translation.
        prefix = np.roll(self.best[:PREFIX_PROBES, :PREFIX_LENGTH], 1, axis=0)
        self.searches.append(self._search(every[:PREFIX_PROBES], greedy, prefix))
        too_long = np.setdiff1d(every, self.fitting)
        if too_long.size:
            self.searches.append(self._search(too_long, greedy))
        self.scores = _in_batches(self._score, self.ids, self.best)
        beam_fitting = [row for row in self.fitting if row in self.beam_rows]
        self.beam_texts = [self.texts[row] for row in beam_fitting]
        beam_ids = self.best[beam_fitting].tolist()
        self.beam_translations: list[str] = translator.target_tokenizer.decode(beam_ids)
        settings = [{**greedy, "probes": len(every)}, {**beam, "probes": len(self.beam_rows)}]
        self.agreed: Figures = {"sentences": len(self.texts), "settings": settings, "ids": "equal"}

    def _search(
        self, rows: np.ndarray, settings: Settings, prefix_ids: np.ndarray = NO_PREFIX
    ) -> ProbeSearch:
        return ProbeSearch(rows, prefix_ids, settings, self.generate(settings, prefix_ids, rows))

    def _best_hypotheses(self, searches: Sequence[ProbeSearch]) -> np.ndarray:
        """Return the best hypothesis of each probe in the last of its searches, int32 (N, T)."""
        length = max(search.searched[0].shape[2] for search in searches)
        best = np.full((len(self.texts), length), PAD_ID, "int32")
        for rows, _, _, (ids, _) in searches:
            best[rows] = PAD_ID
            best[rows, : ids.shape[2]] = ids[:, 0]
        return best

    def check_ids(self, name: str, generate: Generate) -> float:
        """Compare an artifact's translations of ids with the model's.

        Greedy translations are excluded: `check_texts` compares them.

        Args:
            name: name of the artifact, for errors.
            generate: translates ids.

        Returns:
            The largest difference of a score.
        """
        LOG.info("compare %s with the Keras model: translations of ids", name)
        differences = []
        for search in self.searches[1:]:
            results = generate(self.ids[search.rows], search.prefix_ids, search.settings)
            differences.append(parity.compare_ids(name, search.searched, results))
        return max(differences)

    def check_texts(self, name: str, translate: Translate) -> float:
        """Compare an artifact's greedy translations of texts with the model's.

        Args:
            name: name of the artifact, for errors.
            translate: translates texts.

        Returns:
            The largest difference of a score.
        """
        LOG.info("compare %s with the Keras model: translations of texts", name)
        ids, scores = self.searches[0].searched
        expected = self.translator.target_tokenizer.decode(ids[self.fitting, 0].tolist())
        translations = translate(self.short_texts, **self.searches[0].settings)
        texts = [translation.text for translation in translations]
        parity.compare_texts(name, "translations", self.short_texts, expected, texts)
        text_scores = np.array([translation.score for translation in translations])
        return parity.check_numbers(name, "scores", scores[self.fitting, 0], text_scores)

    def check_scores(self, name: str, score: Score) -> Figures:
        """Compare the log-probabilities that an artifact gives to pairs of ids with the model's.

        Args:
            name: name of the artifact, for errors.
            score: from source ids and target ids to log-probabilities of tokens, their sums and
                attention weights.

        Returns:
            The parity figures.
        """
        LOG.info("compare %s with the Keras model: log-probabilities", name)
        return parity.check_scores(name, self.scores, _in_batches(score, self.ids, self.best))

    def check_steps(self, name: str, steps: StepModel) -> None:
        """Compare the tokens of an artifact's decoding steps with the model's greedy search."""
        LOG.info("compare %s with the Keras model: decoding steps", name)
        settings = SearchSettings(**parity.PROBE_SETTINGS[0]).as_arrays()
        tokens = np.stack(list(next_tokens(steps, self.ids, settings)), axis=1)  # (N, T)
        parity.check_tokens(name, self.greedy, tokens)

    def generate(
        self, settings: Settings, prefix_ids: np.ndarray = NO_PREFIX, rows: np.ndarray | None = None
    ) -> Searched:
        """Return the model's translations of the ids of all or some probes, and their scores."""
        ids = self.ids if rows is None else self.ids[rows]
        return run_search(self._generate_function, ids, settings, prefix_ids)

    @functools.cached_property
    def _generate_function(self) -> Callable[..., dict[str, np.ndarray]]:
        return signature_function(self.functions, GENERATE)

    @functools.cached_property
    def _score_function(self) -> Callable[..., dict[str, Tensor]]:
        return signature_function(self.functions, SCORE_AND_ATTEND)

    def _score(self, source_ids: np.ndarray, target_ids: np.ndarray) -> list[np.ndarray]:
        # With oneDNN, Grappler fuses products and masks of full passes, which takes three times as
        # long.
        with without_graph_optimizer():
            outputs = self._score_function(source_ids, target_ids)
        return [outputs[tensor.name].numpy() for tensor in SCORE_AND_ATTEND.outputs]


def _in_batches(
    score: Score, source_ids: np.ndarray, target_ids: np.ndarray
) -> list[Sequence[np.ndarray]]:
    """Return the results of `score` for each batch.

    A batch has targets of similar length, so that there is little padding.
    """
    lengths = np.count_nonzero(target_ids, axis=1)
    batches = np.array_split(np.argsort(lengths), math.ceil(len(lengths) / PROBE_BATCH_SIZE))
    return [
        score(source_ids[batch], target_ids[batch, : max(1, lengths[batch].max())])
        for batch in batches
    ]


def run_search(
    generate: Callable[..., Mapping[str, np.ndarray]],
    ids: np.ndarray,
    settings: Settings,
    prefix_ids: np.ndarray = NO_PREFIX,
) -> Searched:
    """Return the translations of ids by a traced search with these settings, and their scores."""
    values = SearchSettings(**settings).as_dict().values()
    # Grappler would take as long as the searches of a small model, which are as fast without it.
    with without_graph_optimizer():
        outputs = generate(ids, prefix_ids, *values)
    return np.array(outputs["ids"]), np.array(outputs["scores"])
