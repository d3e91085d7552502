"""Write the files of a classifier, and compare their labels and probabilities with the Keras
model's.
"""

from pathlib import Path

import numpy as np

from tfk_transformer.export import file_names, parity
from tfk_transformer.export.parity import Figures
from tfk_transformer.export.runtime.onnx_readers import OnnxClassifier
from tfk_transformer.export.runtime.saved_model_readers import SavedModelClassifier
from tfk_transformer.export.to_onnx import onnx_models
from tfk_transformer.export.to_onnx.layer_operators.layer_nodes import PORTABLE, Profile
from tfk_transformer.export.to_onnx.model_card import describe, model_card
from tfk_transformer.export.to_onnx.onnx_file import OnnxFiles
from tfk_transformer.export.to_saved_model.warm_up import write_warm_up
from tfk_transformer.export.to_saved_model.writer import write_saved_model
from tfk_transformer.inference.runtime import ClassifierRuntime
from tfk_transformer.inference.signatures import CLASSIFIER_SAVED_MODEL
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.text.results import decode


class ExpectedLabels:
    """The probe texts, and the labels and probabilities that the Keras model gives them.

    Args:
        classifier: the classifier.
        profile: of ONNX files; see `onnx_models.generate_graph`.
    """

    def __init__(self, classifier: TextClassifier, profile: Profile | None = PORTABLE):
        self.profile = profile
        self.texts = parity.probe_texts(classifier.probes, classifier.tokenizer)
        self.ids = parity.probe_ids(
            self.texts, classifier.tokenizer, classifier.model.config.max_length
        )
        self.agreed: Figures = {"sentences": len(self.texts), "labels": "equal"}
        self.labels, self.probability, self.probabilities = self._run(classifier.runtime)

    def check(self, name: str, runtime: ClassifierRuntime) -> Figures:
        """Compare an artifact's results with the model's, and return the parity figures."""
        labels, probability, probabilities = self._run(runtime)
        parity.compare_texts(name, "labels", self.texts, self.labels, labels)
        differences = (
            parity.check_probabilities(name, self.probability, probability),
            parity.check_probabilities(name, self.probabilities, probabilities),
        )
        return {"largest_probability_difference": max(differences)}

    def _run(self, runtime: ClassifierRuntime) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Return the predicted labels, their probabilities (N,), and all probabilities (N, C)."""
        outputs = runtime.run("classify", {"text": np.array(self.texts, object)})
        over_ids = runtime.run("probabilities", {"source_ids": self.ids})
        return (
            [decode(label) for label in np.asarray(outputs["label"])],
            np.asarray(outputs["probability"]),
            np.asarray(over_ids["probabilities"]),
        )


def export_saved_model(
    classifier: TextClassifier, folder: Path, expected: ExpectedLabels
) -> Figures:
    """Write and compare the SavedModel of a classifier."""
    path = folder / file_names.SAVED_MODEL_FOLDER
    write_saved_model(
        classifier, classifier.functions, path, CLASSIFIER_SAVED_MODEL, labels=classifier.labels
    )
    write_warm_up(path, CLASSIFIER_SAVED_MODEL, expected.texts)
    return expected.check("SavedModel", SavedModelClassifier(path).runtime)


def export_onnx(classifier: TextClassifier, folder: Path, expected: ExpectedLabels) -> Figures:
    """Write and compare the ONNX files of a classifier."""
    probabilities = onnx_models.probabilities_graph(classifier, expected.profile)
    classify = onnx_models.classify_graph(probabilities, classifier)
    models = {file_names.PROBABILITIES_FILE: probabilities, file_names.CLASSIFY_FILE: classify}
    describe(models.values(), model_card(classifier))
    files = OnnxFiles(models, folder, classifier.model.config, {"labels": classifier.labels})
    figures = expected.check("ONNX", OnnxClassifier(folder / file_names.CLASSIFY_FILE).runtime)
    files.add_metadata(parity={**expected.agreed, **figures})
    return figures
