"""What all that score pairs of texts token by token have in common."""

from collections.abc import Sequence

import numpy as np

from tfk_transformer.inference.text_batches import Hypothesis


class PairScorer:
    """Scores pairs of texts over two things that a subclass has: `_scored`, their rows of arrays, and `_pieces`, which names tokens."""

    def score(self, sources: Sequence[str], targets: Sequence[str], batch_size: int = 64) -> np.ndarray:
        """Return the log-probability of each target given its source, float32 (N,), by the full masked pass.

        Args:
            sources: the texts.
            targets: a translation of each.
            batch_size: pairs scored at once; it does not change the result.

        Raises:
            ValueError: if the sides differ in number, or a text is too long for the model.
        """
        return np.array([row[0] for row in self._scored(sources, targets, batch_size, attention=False)], "float32")

    def score_tokens(
        self, sources: Sequence[str], targets: Sequence[str], batch_size: int = 64, attention: bool = False
    ) -> list[Hypothesis]:
        """Score pairs as `score` does, token by token: each target as a hypothesis, with its log-probability as its score."""
        rows = self._scored(sources, targets, batch_size, attention)
        return [
            self._pieces.name(Hypothesis(target, float(log_probability)), *arrays)
            for target, (log_probability, *arrays) in zip(targets, rows, strict=True)
        ]
