"""TensorFlow functions for classification, which `TextClassifier` runs and exports contain."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.models.classifier import Classifier
from tfk_transformer.search.translation_functions import ensure_vector, readable_rows
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer


class Classified(NamedTuple):
    """The results for a batch; C classes."""

    label: Tensor  # string (B,)
    probability: Tensor  # float32 (B,), of the label
    probabilities: Tensor  # float32 (B, C)


class ClassificationFunctions:
    """Classification of ids, and of strings with the tokenizer inside.

    A blank text has the empty label, and the probabilities of all classes are 0. A text of more
    than `max_length` tokens, or with ids outside the vocabulary, is not cut and does not affect the
    other rows: it has the empty label and probabilities NaN.

    Args:
        model: a built model; its weights are read at run time.
        tokenizer: the tokenizer of the texts.
        labels: the names of the classes, in the model's order.
    """

    def __init__(
        self, model: Classifier, tokenizer: SubwordTokenizer, labels: Sequence[str]
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.labels = labels

    def probabilities(self, source: Tensor) -> Tensor:
        """Return float32 probabilities (B, C) of int32 ids (B, S): tokens and end token, padded."""
        config = self.model.config
        lengths, fits, ids = readable_rows(source, config.vocab_size, config.max_length)
        logits = self.model(ids, training=False)
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))
        probabilities = tf.where((lengths > 1)[:, None], probabilities, 0.0)  # blank texts
        return tf.where(fits, probabilities, float("nan"))

    def classify(self, texts: Tensor) -> Classified:
        """Classify string texts (B,)."""
        probabilities = self.probabilities(self.tokenizer.graph_encode(ensure_vector(texts)))
        best = tf.argmax(probabilities, axis=1, output_type=tf.int32)  # (B,)
        probability = tf.gather(probabilities, best, batch_dims=1)
        index = tf.where(probability > 0.0, best + 1, 0)
        return Classified(
            tf.gather(tf.constant(["", *self.labels]), index),
            probability,
            probabilities,
        )
