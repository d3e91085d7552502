"""Classify with an exported SavedModel. Needs TensorFlow and TensorFlow Text, and no Keras."""

from collections.abc import Sequence
from os import PathLike

import numpy as np

from tfk_transformer.array_types import Tensor
from tfk_transformer.export.runtime.saved_model_files import check_signature, read_saved_model
from tfk_transformer.inference.interface import LoadedModel
from tfk_transformer.inference.results import to_classifications
from tfk_transformer.inference.text_batches import check_texts, run_in_batches
from tfk_transformer.results import Classification
from tfk_transformer.runtime_environment import check_process


class SavedModelClassifier(LoadedModel):
    """Classify with an exported SavedModel.

    Args:
        path: its folder.
        model: the SavedModel, if it is already loaded.

    Raises:
        ValueError: if the folder is not the SavedModel of a classifier that this project exported.
        ImportError: if TensorFlow is not installed.
    """

    _refusal = "expected a translator, got a classifier; use classify."

    def __init__(self, path: str | PathLike[str], model: Tensor | None = None) -> None:
        self._model = read_saved_model(path) if model is None else model
        check_signature(self._model.signatures, "classify", path)
        self.max_length = int(self._model.max_length())
        self.labels = [label.decode("utf-8") for label in self._model.labels().numpy()]

    def classify(self, texts: Sequence[str], *, batch_size: int = 64) -> list[Classification]:
        """Classify texts; see `ClassifierProtocol.classify`."""
        import tensorflow as tf

        check_process()
        check_texts(texts)

        def run(batch: Sequence[str]) -> list[np.ndarray]:
            outputs = self._model.signatures["classify"](text=tf.constant(batch))
            return [outputs[name].numpy() for name in ("label", "probability", "probabilities")]

        return to_classifications(
            texts, run_in_batches(texts, batch_size, run), self.labels, self.max_length
        )
