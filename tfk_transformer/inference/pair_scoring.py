"""Scoring of given pairs of texts, as every runtime does it."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tfk_transformer.inference.interface import LoadedModel
from tfk_transformer.inference.results import ScoredTarget
from tfk_transformer.inference.text_errors import TextError

if TYPE_CHECKING:
    from tfk_transformer.inference.token_scoring import Tokenizers

Result = TypeVar("Result")


class PairScorer(LoadedModel):
    """Score pairs of texts; a subclass provides `_scored` and `_tokenizers`."""

    @abstractmethod
    def _scored(
        self, sources: Sequence[str], targets: Sequence[str], batch_size: int, attention: bool
    ) -> list[tuple[Any, ...]]:
        """Return a row for each pair: its log-probability, source ids, target ids, token
        log-probabilities and, if wanted, attention.
        """

    @property
    @abstractmethod
    def _tokenizers(self) -> "Tokenizers": ...

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64
    ) -> np.ndarray:
        """Return the log-probability of each target given its source, float32 (N,); see
        `TranslatorProtocol.score`.
        """
        log_probabilities = self._results(
            lambda number, row: float(row[0]), sources, targets, batch_size, attention=False
        )
        return np.array(log_probabilities, "float32")

    def score_tokens(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        batch_size: int = 64,
        attention: bool = False,
    ) -> list[ScoredTarget]:
        """Score pairs token by token; see `TranslatorProtocol.score_tokens`."""

        def scored_target(number: int, row: Sequence[Any]) -> ScoredTarget:
            log_probability, *arrays = row
            return self._tokenizers.scored_target(targets[number], float(log_probability), *arrays)

        return self._results(scored_target, sources, targets, batch_size, attention)

    def _results(
        self,
        convert: Callable[[int, Any], Result],
        sources: Sequence[str],
        targets: Sequence[str],
        batch_size: int,
        attention: bool,
    ) -> list[Result]:
        """Score pairs, and turn the number and the row of each into its result."""
        try:
            rows = self._scored(sources, targets, batch_size, attention)
        except TextError as error:
            raise error.with_results(convert) from None
        return [convert(number, row) for number, row in enumerate(rows)]
