"""Classify with an exported ONNX file. Needs numpy, onnxruntime and onnxruntime-extensions, and
never TensorFlow or Keras.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from tfk_transformer.export.runtime.sessions import OnnxFile, open_onnx_file, required
from tfk_transformer.inference.interface import LoadedModel
from tfk_transformer.inference.results import to_classifications
from tfk_transformer.inference.text_batches import check_texts, run_in_batches
from tfk_transformer.results import Classification


class OnnxClassifier(LoadedModel):
    """Classify with `classify.onnx`.

    Args:
        path: the file, or an open `OnnxFile`.
        threads: the number of threads, which one text or several batches at the same time share.
            Default: the number of processors.

    Raises:
        ValueError: if the file is not a classifier that this project exported and that takes text,
            or `threads` is less than 1.
    """

    _refusal = "expected a translator, got a classifier; use classify."

    def __init__(self, path: str | PathLike[str] | OnnxFile, threads: int | None = None) -> None:
        self._file = open_onnx_file(path, threads, "OnnxClassifier")
        self.metadata = self._file.metadata
        self.labels: list[str] = required(self.metadata, "labels", self._file.path)
        self.max_length = self._file.max_length

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the threads; see `OnnxFile`."""
        return type(self), (self._file,)

    def classify(self, texts: Sequence[str], *, batch_size: int = 64) -> list[Classification]:
        """Classify texts; see `ClassifierProtocol.classify`."""
        check_texts(texts)
        session, concurrency = self._file.session(len(texts))

        def run(batch: Sequence[str]) -> Sequence[Any]:
            return session.run(
                ["label", "probability", "probabilities"], {"text": np.array(batch, object)}
            )

        rows = run_in_batches(texts, batch_size, run, concurrency=concurrency)
        return to_classifications(texts, rows, self.labels, self.max_length)
