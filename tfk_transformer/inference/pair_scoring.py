"""The scoring of text pairs, which all runtimes share."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tfk_transformer.inference.interface import LoadedModel
from tfk_transformer.inference.text_errors import TextError
from tfk_transformer.results import ScoredTarget

if TYPE_CHECKING:
    from tfk_transformer.inference.token_scoring import Tokenizers

Result = TypeVar("Result")


class PairScorer(LoadedModel):
    """Score pairs of texts; a subclass provides `_scored` and `_tokenizers`."""

    @abstractmethod
    def _scored(
        self, sources: Sequence[str], targets: Sequence[str], batch_size: int, attention: bool
    ) -> list[tuple[Any, ...]]:
        """Return a row for each pair.

        A row has the log-probability, source ids, target ids, token log-probabilities and, if
        requested, attention.
        """

    @property
    @abstractmethod
    def _tokenizers(self) -> "Tokenizers": ...

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64
    ) -> np.ndarray:
        """Return the log-probability of each target; see `TranslatorProtocol.score`."""
        log_probabilities = self._results(
            lambda index, row: float(row[0]), sources, targets, batch_size, attention=False
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

        def scored_target(index: int, row: Sequence[Any]) -> ScoredTarget:
            log_probability, *arrays = row
            details = self._tokenizers.details(*arrays)
            return ScoredTarget(
                targets[index],
                float(log_probability),
                details.tokens,
                details.token_log_probs or [],
                details.attention,
                details.source_tokens,
            )

        return self._results(scored_target, sources, targets, batch_size, attention)

    def _results(
        self,
        convert: Callable[[int, Any], Result],
        sources: Sequence[str],
        targets: Sequence[str],
        batch_size: int,
        attention: bool,
    ) -> list[Result]:
        """Score pairs, and convert the index and the row of each pair to its result."""
        try:
            rows = self._scored(sources, targets, batch_size, attention)
        except TextError as error:
            raise error.with_results(convert) from None
        return [convert(index, row) for index, row in enumerate(rows)]
