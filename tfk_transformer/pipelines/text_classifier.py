"""Classifier, tokenizer and labels together: text to label, saved and loaded as a bundle."""

import functools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tfk_transformer.atomic_write import written_whole
from tfk_transformer.inference.text_batches import Classification, check_texts, in_batches, to_classifications
from tfk_transformer.pipelines.bundle import (
    CLASSIFIER,
    LABELS,
    SOURCE_TOKENIZER,
    plain_copy,
    read_model,
    read_probes,
    write_json,
    write_parts,
)
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer


class TextClassifier:
    """A fitted classifier with its tokenizer and labels: text to label.

    A text reaches the model as its tokens and the end token, as `SubwordTokenizer.graph_encode` gives them; fit it on the
    same.

    Args:
        model: a built `Classifier`.
        tokenizer: of the texts.
        labels: of the classes, in the order of the model's logits.
        probes: texts on which exports are compared with the model.

    Raises:
        ValueError: if the model is no classifier, the tokenizer's vocabulary is of another size, or the labels are not a
            different, non-blank string for each class.
    """

    def __init__(self, model, tokenizer: SubwordTokenizer, labels: Sequence[str], probes: Sequence[str] = ()):
        config = model.config
        if config.architecture != "encoder":
            raise ValueError(f"model: expected a Classifier, got a {type(model).__name__}.")
        if config.vocab_size != tokenizer.vocab_size:
            raise ValueError(f"tokenizer: expected {config.vocab_size} pieces, the model's vocab_size, got {tokenizer.vocab_size}.")
        self.model = model
        self.tokenizer = tokenizer
        self.labels = _checked(labels, config.num_classes)
        self.probes = list(probes)

    def classify(self, texts: Sequence[str], batch_size: int = 64) -> list[Classification]:
        """Classify texts, in their order; those of like length go together.

        Args:
            texts: what to classify; a blank one has the label "" with probability 0.
            batch_size: texts classified at once; it does not change the result.

        Raises:
            ValueError: if a text is too long for the model.
        """
        check_texts(texts)

        def run(batch):
            return [part.numpy() for part in self._classify(np.array(batch, object))]

        return to_classifications(texts, in_batches(texts, batch_size, run), self.labels, self.model.config.max_length)

    @functools.cached_property
    def graph(self):
        """The classifier as TensorFlow graph functions."""
        from tfk_transformer.generation.classification_functions import ClassificationGraph

        return ClassificationGraph(self.model, self.tokenizer, self.labels)

    @functools.cached_property
    def _classify(self):
        import tensorflow as tf

        return tf.function(self.graph.classify, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])

    def save(self, path, history: dict | None = None, metrics: dict | None = None, more: Callable[[Path], None] | None = None) -> None:
        """Write the bundle: whole, or not at all.

        Args:
            path: of the folder; one that is there is replaced at the very end.
            history: what `model.fit` recorded, lists by name.
            metrics: figures of the finished model, by name.
            more: writes further files into the folder, before it is put in place.
        """
        with written_whole(path) as folder:
            folder.mkdir()
            write_parts(folder, self.model, self.probes, history, metrics)
            self.tokenizer.save(folder / SOURCE_TOKENIZER)
            write_json(folder / LABELS, self.labels)
            if more:
                more(folder)

    def in_float32(self) -> "TextClassifier":
        """Return this classifier, or one of the same weights that computes in float32, as every exported file does."""
        if self.model.compute_dtype == "float32":
            return self
        return TextClassifier(plain_copy(self.model), self.tokenizer, self.labels, self.probes)

    @classmethod
    def load(cls, path) -> "TextClassifier":
        """Read a bundle; it holds data alone, and no code of it is run.

        Raises:
            ValueError: if files are missing, or do not fit together, or are a translator's.
        """
        folder = Path(path)
        model = read_model(folder, CLASSIFIER)
        return cls(model, SubwordTokenizer.load(folder / SOURCE_TOKENIZER), _read_labels(folder / LABELS), read_probes(folder))


def _checked(labels: Sequence[str], num_classes: int) -> list[str]:
    """Return the labels as a list, or say all that is wrong with them."""
    if not isinstance(labels, (list, tuple, np.ndarray)):
        raise ValueError(f"labels: expected a list of strings, got {type(labels).__name__}.")
    problems = [f"{label!r}, which is no name" for label in labels if not isinstance(label, str) or not label.strip()]
    counts = Counter(label for label in labels if isinstance(label, str))
    problems += [f"'{label}' {count} times" for label, count in counts.items() if count > 1]
    if len(labels) != num_classes:
        problems.append(f"{len(labels)} of them")
    if problems:
        raise ValueError(f"labels: expected {num_classes} different strings, one for each class, got {', '.join(problems)}.")
    return [str(label) for label in labels]


def _read_labels(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"bundle: expected JSON in {path}, got text that breaks off or is malformed ({error}).") from None
