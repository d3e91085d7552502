"""A classifier on any runtime."""

from collections.abc import Sequence

import numpy as np

from tfk_transformer.inference.batches import run_in_batches
from tfk_transformer.inference.runtime import ClassifierRuntime, Workload
from tfk_transformer.text.outcome import (
    Outcome,
    check_texts,
    long_texts,
    outcomes_of_valid,
    results_of,
    too_long,
)
from tfk_transformer.text.results import Classification, decode


class BaseClassifier:
    """A text classifier on any runtime.

    The subclasses `TextClassifier`, `SavedModelClassifier` and `OnnxClassifier` open bundles and
    exported files.

    Args:
        runtime: runs the functions of the model.
    """

    def __init__(self, runtime: ClassifierRuntime) -> None:
        self.runtime = runtime

    @property
    def labels(self) -> list[str]:
        """The names of the classes, in the model's order."""
        return self.runtime.labels

    @property
    def max_length(self) -> int:
        """The model's limit in tokens."""
        return self.runtime.max_length

    def classify(self, texts: Sequence[str], *, batch_size: int = 64) -> list[Classification]:
        """Classify texts.

        Args:
            texts: the texts. A blank text has the label "" with probability 0.
            batch_size: number of texts in a batch, which does not change the results.

        Returns:
            One classification for each text, in the order of `texts`.

        Raises:
            ValueError: if a text is too long for the model.
        """
        check_texts(texts)
        return results_of(
            self._outcomes(texts, batch_size),
            lambda refused: long_texts(texts, refused, self.max_length),
        )

    def try_classify(
        self, texts: Sequence[str], *, batch_size: int = 64
    ) -> list[Outcome[Classification]]:
        """Classify texts as `classify` does; a text that cannot be classified is `Refused`."""
        return outcomes_of_valid(lambda valid: self._outcomes(valid, batch_size), {"texts": texts})

    def _outcomes(self, texts: Sequence[str], batch_size: int) -> list[Outcome[Classification]]:
        workload = Workload(self.runtime.concurrency(len(texts)), small=len(texts) < 2)

        def run(batch: Sequence[str]) -> list[np.ndarray]:
            outputs = self.runtime.run("classify", {"text": np.array(batch, object)}, workload)
            return [np.asarray(outputs[name]) for name in ("label", "probability", "probabilities")]

        rows = run_in_batches(texts, batch_size, run, concurrency=workload.concurrency)
        return [
            too_long(text, self.max_length)
            if np.isnan(probability)
            else Classification(
                text,
                decode(label),
                float(probability),
                dict(zip(self.labels, map(float, probabilities), strict=True)),
            )
            for text, (label, probability, probabilities) in zip(texts, rows, strict=True)
        ]
