"""The probe sentences of a translator, and the Keras model's results on them, with which every file is compared."""

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.export import parity
from tfk_transformer.export.functions import traced
from tfk_transformer.export.parity import Figures, Searched
from tfk_transformer.export.signatures import GENERATE, SCORE_AND_ATTEND
from tfk_transformer.export.to_onnx import onnx_models
from tfk_transformer.inference.results import Translation
from tfk_transformer.inference.streaming import StepModel, next_tokens
from tfk_transformer.pipelines.translator import Translator

Settings = Mapping[str, int | float]
Generate = Callable[[np.ndarray, np.ndarray, Settings], Searched]  # from source ids, prefix ids and settings
Score = Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]]  # from source ids and target ids
Translate = Callable[..., list[Translation]]  # from texts, with search settings

BATCH_SIZE = 32  # the most probes that are scored, or that onnxruntime runs, at once; with all, large models need several times the RAM
PREFIX_LENGTH = 2  # tokens of the forced prefixes
NO_PREFIX = np.zeros((1, 0), "int32")
LOG = logging.getLogger(__name__)


class ExpectedResults:
    """The probe sentences, and the Keras model's results on them.

    The results are its translations under each of `parity.SETTINGS` and with a forced prefix, and the scores of its translations.
    """

    def __init__(self, translator: Translator):
        self.translator, tokenizer = translator, translator.source_tokenizer
        self.texts = parity.probe_texts(translator.probes, tokenizer)
        self.ids = parity.probe_ids(self.texts, tokenizer, translator.model.config.max_length)
        self.agreed: Figures = {"sentences": len(self.texts), "settings": list(parity.SETTINGS), "ids": "equal"}
        self.searches: list[tuple[np.ndarray, Settings, Searched]] = [
            (NO_PREFIX, settings, self.generate(settings)) for settings in parity.SETTINGS
        ]
        self.greedy, self.best = (ids[:, 0] for _, _, (ids, _) in self.searches)  # the best hypotheses' ids (N, T) under each
        prefix = np.roll(self.best[:, :PREFIX_LENGTH], 1, axis=0)  # of each probe, the beginning of another one's translation
        self.searches.append((prefix, parity.SETTINGS[0], self.generate(parity.SETTINGS[0], prefix)))
        self.scores = _in_batches(self._score, self.ids, self.best)
        # Texts that are too long are compared over ids only: the runtimes refuse them.
        self.fitting = [row for row, ids in enumerate(tokenizer.encode(self.texts)) if len(ids) < self.ids.shape[1]]
        self.short_texts = [self.texts[row] for row in self.fitting]
        self.translations: list[str] = translator.target_tokenizer.decode(self.best[self.fitting].tolist())

    @functools.cached_property
    def search(self) -> ir.Model:
        """The search as an ONNX model, which every profile shares."""
        return onnx_models.search_graph(self.translator)

    def check_searches(self, name: str, generate: Generate) -> Figures:
        """Compare an artifact's translations of ids with the model's.

        Args:
            name: name of the artifact, for errors.
            generate: translates ids.

        Returns:
            The parity figures.
        """
        LOG.info("compare %s with the Keras model: translations of ids", name)
        searches = [(expected, generate(self.ids, prefix, settings)) for prefix, settings, expected in self.searches]
        return {"largest_score_difference": max(parity.check_ids(name, expected, found) for expected, found in searches)}

    def check_texts(self, name: str, translate: Translate) -> None:
        """Compare an artifact's translations of texts with the model's, greedily: other searches are compared over ids.

        Args:
            name: name of the artifact, for errors.
            translate: translates texts.
        """
        LOG.info("compare %s with the Keras model: translations of texts", name)
        expected = self.translator.target_tokenizer.decode(self.greedy[self.fitting].tolist())
        found = [translation.text for translation in translate(self.short_texts, beam_size=1)]
        parity.check_rows(name, "translations", self.short_texts, expected, found)

    def check_scores(self, name: str, score: Score) -> Figures:
        """Compare the log-probabilities that an artifact gives to pairs of ids with the model's.

        Args:
            name: name of the artifact, for errors.
            score: from source ids and target ids to log-probabilities of tokens, their sums and attention weights.

        Returns:
            The parity figures.
        """
        LOG.info("compare %s with the Keras model: log-probabilities", name)
        return parity.check_scores(name, self.scores, _in_batches(score, self.ids, self.best))

    def check_steps(self, name: str, steps: StepModel) -> None:
        """Compare the tokens of a loop over an artifact's decoding steps with the model's greedy search."""
        LOG.info("compare %s with the Keras model: decoding steps", name)
        settings = SearchSettings.model_validate(parity.SETTINGS[0]).as_arrays()
        found = np.stack(list(next_tokens(steps, self.ids, settings)), axis=1)  # (N, T)
        parity.check_tokens(name, self.greedy, found)

    def generate(self, settings: Settings, prefix_ids: np.ndarray = NO_PREFIX) -> Searched:
        """Return the model's translations of the probe ids with these search settings, and their scores."""
        return run_search(self._generate_function, self.ids, settings, prefix_ids)

    @functools.cached_property
    def _generate_function(self) -> Callable[..., dict[str, np.ndarray]]:
        return traced(self.translator.functions, GENERATE)

    @functools.cached_property
    def _score_function(self) -> Callable[..., dict[str, Tensor]]:
        return traced(self.translator.functions, SCORE_AND_ATTEND)

    def _score(self, source_ids: np.ndarray, target_ids: np.ndarray) -> list[np.ndarray]:
        found = self._score_function(source_ids, target_ids)
        return [found[tensor.name].numpy() for tensor in SCORE_AND_ATTEND.outputs]


def _in_batches(score: Score, source_ids: np.ndarray, target_ids: np.ndarray) -> list[Sequence[np.ndarray]]:
    """Return what `score` gives for each batch. Targets of similar length are together, so that there is little padding."""
    lengths = np.count_nonzero(target_ids, axis=1)
    batches = np.array_split(np.argsort(lengths), math.ceil(len(lengths) / BATCH_SIZE))
    return [score(source_ids[batch], target_ids[batch, : max(1, lengths[batch].max())]) for batch in batches]


def run_search(
    generate: Callable[..., Mapping[str, np.ndarray]], ids: np.ndarray, settings: Settings, prefix_ids: np.ndarray = NO_PREFIX
) -> Searched:
    """Return the translations of ids by a traced search of these settings, and their scores."""
    values = SearchSettings.model_validate(settings).model_dump().values()
    found = generate(ids, prefix_ids, *values)
    return np.array(found["ids"]), np.array(found["scores"])
