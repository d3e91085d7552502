"""The files of a classifier, each compared with the model's own labels and probabilities."""

from pathlib import Path

import numpy as np

from tfk_transformer.export import parity
from tfk_transformer.export.functions import traced
from tfk_transformer.export.runtime.saved_model_files import write_saved_model
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.signatures import CLASSIFIER_SAVED_MODEL, CLASSIFY_IDS, CLASSIFY_TEXT
from tfk_transformer.export.to_onnx import onnx_models
from tfk_transformer.export.to_onnx.onnx_file import save_onnx
from tfk_transformer.export.to_saved_model.warm_up import write_warm_up
from tfk_transformer.pipelines.text_classifier import TextClassifier


class Probes:
    """Probe texts, and the labels and probabilities that the Keras model gives them."""

    def __init__(self, classifier: TextClassifier):
        self.texts = parity.probe_texts(classifier.probes, classifier.tokenizer)
        self.ids = parity.probe_ids(self.texts, classifier.tokenizer, classifier.model.config.max_length)
        self.agreed = {"sentences": len(self.texts), "labels": "equal"}
        self.label, self.probability = self._of_text(traced(classifier.functions, CLASSIFY_TEXT))
        self.probabilities = self._of_ids(traced(classifier.functions, CLASSIFY_IDS))

    def check(self, name: str, of_text, of_ids) -> dict:
        """Compare an artefact's functions, from an array to a dictionary, with the model's; return the figures."""
        label, probability = self._of_text(of_text)
        parity.check_rows(name, "labels", self.texts, self.label, label)
        pairs = ((self.probability, probability), (self.probabilities, self._of_ids(of_ids)))
        return {"largest_probability_difference": max(parity.check_probabilities(name, *pair) for pair in pairs)}

    def _of_text(self, function) -> tuple[list[str], np.ndarray]:
        """Return labels and their probabilities (N,)."""
        found = function(np.array(self.texts, object))
        return [label if isinstance(label, str) else label.decode() for label in np.array(found["label"])], np.array(found["probability"])

    def _of_ids(self, function) -> np.ndarray:
        """Return probabilities (N, C)."""
        return np.array(function(self.ids)["probabilities"])


def _saved_model(classifier: TextClassifier, folder: Path, probes: Probes) -> dict:
    import tensorflow as tf

    write_saved_model(classifier, folder / "saved_model", CLASSIFIER_SAVED_MODEL, labels=classifier.labels)
    write_warm_up(folder / "saved_model", CLASSIFIER_SAVED_MODEL, probes.texts)
    signatures = tf.saved_model.load(str(folder / "saved_model")).signatures
    return probes.check(
        "SavedModel",
        lambda texts: signatures["classify"](text=tf.constant(texts)),
        lambda ids: signatures["probabilities"](source_ids=tf.constant(ids)),
    )


def _onnx(classifier: TextClassifier, folder: Path, probes: Probes) -> dict:
    probabilities = onnx_models.probabilities_graph(classifier)
    models = {"probabilities.onnx": probabilities, "classify.onnx": onnx_models.classify_graph(probabilities, classifier)}
    config, labels = classifier.model.config, classifier.labels
    save_onnx(models, folder, config, labels=labels)
    classify = open_session(folder / "classify.onnx", text_operators=True)
    over_ids = open_session(folder / "probabilities.onnx")
    figures = probes.check("ONNX", lambda texts: _outputs(classify, text=texts), lambda ids: _outputs(over_ids, source_ids=ids))
    save_onnx(models, folder, config, labels=labels, parity={**probes.agreed, **figures})
    return figures


def _outputs(session, **inputs) -> dict[str, np.ndarray]:
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


WRITERS = {"saved_model": _saved_model, "onnx": _onnx}
UNASKED = tuple(WRITERS)  # written where no formats are given
