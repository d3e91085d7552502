"""Scoring of given pairs of texts, as every runtime does it."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfk_transformer.inference.interface import LoadedModel
from tfk_transformer.inference.results import ScoredTarget

if TYPE_CHECKING:
    from tfk_transformer.inference.token_scoring import Tokenizers


class PairScorer(LoadedModel):
    """Score pairs of texts; a subclass provides `_scored` and `_tokenizers`."""

    @abstractmethod
    def _scored(self, sources: Sequence[str], targets: Sequence[str], batch_size: int, attention: bool) -> list[tuple[Any, ...]]:
        """Return a row for each pair: its log-probability, source ids, target ids, token log-probabilities and, if wanted, attention."""

    @property
    @abstractmethod
    def _tokenizers(self) -> "Tokenizers": ...

    def score(self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64) -> np.ndarray:
        """Return the log-probability of each target given its source, float32 (N,); see `TranslatorProtocol.score`."""
        return np.array([row[0] for row in self._scored(sources, targets, batch_size, attention=False)], "float32")

    def score_tokens(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64, attention: bool = False
    ) -> list[ScoredTarget]:
        """Score pairs token by token; see `TranslatorProtocol.score_tokens`."""
        rows = self._scored(sources, targets, batch_size, attention)
        return [
            self._tokenizers.scored_target(target, float(log_probability), *arrays)
            for target, (log_probability, *arrays) in zip(targets, rows, strict=True)
        ]
