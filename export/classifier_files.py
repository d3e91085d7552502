"""Write the files of a classifier, and compare their labels and probabilities with the Keras
model's.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession

from tfk_transformer.array_types import Tensor
from tfk_transformer.export import file_names, parity
from tfk_transformer.export.functions import signature_function
from tfk_transformer.export.parity import Figures
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.signatures import CLASSIFIER_SAVED_MODEL, CLASSIFY_IDS, CLASSIFY_TEXT
from tfk_transformer.export.to_onnx import onnx_models
from tfk_transformer.export.to_onnx.onnx_file import OnnxFiles
from tfk_transformer.export.to_saved_model.warm_up import write_warm_up
from tfk_transformer.export.to_saved_model.writer import write_saved_model
from tfk_transformer.pipelines.text_classifier import TextClassifier

# A function of an artifact: from texts (N,) or ids (N, S) to tensors by name.
Function = Callable[[np.ndarray], Mapping[str, Tensor]]


class ExpectedLabels:
    """The probe texts, and the labels and probabilities that the Keras model gives them."""

    def __init__(self, classifier: TextClassifier):
        self.texts = parity.probe_texts(classifier.probes, classifier.tokenizer)
        self.ids = parity.probe_ids(
            self.texts, classifier.tokenizer, classifier.model.config.max_length
        )
        self.agreed: Figures = {"sentences": len(self.texts), "labels": "equal"}
        classify_text = signature_function(classifier.functions, CLASSIFY_TEXT)
        self.labels, self.probability = self._classify_texts(classify_text)
        classify_ids = signature_function(classifier.functions, CLASSIFY_IDS)
        self.probabilities = np.array(classify_ids(self.ids)["probabilities"])

    def check(self, name: str, classify_text: Function, classify_ids: Function) -> Figures:
        """Compare an artifact's results with the model's, and return the parity figures."""
        labels, probability = self._classify_texts(classify_text)
        parity.compare_texts(name, "labels", self.texts, self.labels, labels)
        probabilities = np.array(classify_ids(self.ids)["probabilities"])
        differences = (
            parity.check_probabilities(name, self.probability, probability),
            parity.check_probabilities(name, self.probabilities, probabilities),
        )
        return {"largest_probability_difference": max(differences)}

    def _classify_texts(self, function: Function) -> tuple[list[str], np.ndarray]:
        """Return the labels, and their probabilities (N,)."""
        outputs = function(np.array(self.texts, object))
        labels = [
            label if isinstance(label, str) else label.decode()
            for label in np.array(outputs["label"])
        ]
        return labels, np.array(outputs["probability"])


def export_saved_model(
    classifier: TextClassifier, folder: Path, expected: ExpectedLabels
) -> Figures:
    """Write and compare the SavedModel of a classifier."""
    import tensorflow as tf

    path = folder / file_names.SAVED_MODEL_FOLDER
    write_saved_model(
        classifier, classifier.functions, path, CLASSIFIER_SAVED_MODEL, labels=classifier.labels
    )
    write_warm_up(path, CLASSIFIER_SAVED_MODEL, expected.texts)
    signatures = tf.saved_model.load(str(path)).signatures
    return expected.check(
        "SavedModel",
        lambda texts: signatures["classify"](text=tf.constant(texts)),
        lambda ids: signatures["probabilities"](source_ids=tf.constant(ids)),
    )


def export_onnx(classifier: TextClassifier, folder: Path, expected: ExpectedLabels) -> Figures:
    """Write and compare the ONNX files of a classifier."""
    probabilities = onnx_models.probabilities_graph(classifier)
    classify = onnx_models.classify_graph(probabilities, classifier)
    models = {file_names.PROBABILITIES_FILE: probabilities, file_names.CLASSIFY_FILE: classify}
    files = OnnxFiles(models, folder, classifier.model.config, {"labels": classifier.labels})
    over_texts = open_session(folder / file_names.CLASSIFY_FILE, text_operators=True)
    over_ids = open_session(folder / file_names.PROBABILITIES_FILE)
    figures = expected.check(
        "ONNX",
        lambda texts: _outputs(over_texts, text=texts),
        lambda ids: _outputs(over_ids, source_ids=ids),
    )
    files.add_metadata(parity={**expected.agreed, **figures})
    return figures


def _outputs(session: InferenceSession, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))
