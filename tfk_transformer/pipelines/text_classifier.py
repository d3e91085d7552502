"""A classifier with its tokenizer and labels: text to label, saved and loaded as a bundle."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from tfk_transformer.config.small_files import read_json
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.pipelines import bundle
from tfk_transformer.pipelines.bundle import SavedAsBundle
from tfk_transformer.pipelines.keras_runtime import KerasClassifierRuntime
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer, check_protocol

if TYPE_CHECKING:
    from tfk_transformer.models.classifier import EncoderClassifier
    from tfk_transformer.search.model_functions import ClassificationFunctions


class TextClassifier(BaseClassifier, SavedAsBundle):
    """A fitted classifier with its tokenizer and labels: text to label.

    The model receives the tokens of a text and the end token, as `SubwordTokenizer.graph_encode`
    returns them. Fit the model on the same ids.

    Args:
        model: an `EncoderClassifier`. It is built if needed.
        tokenizer: the tokenizer of the texts.
        labels: the names of the classes, in the order of the logits.
        probes: texts on which exports are compared with the model.

    Raises:
        ValueError: if the model is not a classifier, its vocabulary size and the tokenizer's
            differ, or the labels are not different, non-blank strings, one for each class.
    """

    def __init__(
        self,
        model: "EncoderClassifier",
        tokenizer: SubwordTokenizer,
        labels: Sequence[str],
        probes: Sequence[str] = (),
    ) -> None:
        check_protocol(tokenizer, "tokenizer")
        config = model.config
        if config.has_decoder:
            raise ValueError(f"model: expected an EncoderClassifier, got {type(model).__name__}.")
        if config.vocab_size != tokenizer.vocab_size:
            raise ValueError(
                f"tokenizer: expected {config.vocab_size} pieces, the model's vocab_size, got "
                f"{tokenizer.vocab_size}."
            )
        names = _check_labels(labels, config.num_classes)
        model.build()
        self.runtime: KerasClassifierRuntime = KerasClassifierRuntime(model, tokenizer, names)
        self.model = model
        self.tokenizer = tokenizer
        self.probes = list(probes)

    @property
    def functions(self) -> "ClassificationFunctions":
        """The classifier as TensorFlow functions."""
        return self.runtime.functions

    def _write_files(self, folder: Path) -> None:
        self.tokenizer.save(folder / bundle.SOURCE_TOKENIZER)
        bundle.write_json(folder / bundle.LABELS, self.labels)

    def in_float32(self) -> "TextClassifier":
        """Return this classifier, or a copy with a float32 model without LoRA and quantization.

        Every exported file computes in float32.
        """
        if bundle.is_plain(self.model):
            return self
        return TextClassifier(
            bundle.plain_copy(self.model), self.tokenizer, self.labels, self.probes
        )

    @classmethod
    def _read_files(cls, folder: Path) -> Self:
        model = bundle.read_model(folder, bundle.CLASSIFIER)
        tokenizer = SubwordTokenizer.load(folder / bundle.SOURCE_TOKENIZER)
        labels = read_json(folder / bundle.LABELS)
        return cls(model, tokenizer, labels, bundle.read_probes(folder / bundle.PROBES))


def _check_labels(labels: Sequence[str], num_classes: int) -> list[str]:
    """Return the labels as a list; a ValueError names every problem of them."""
    if not isinstance(labels, (list, tuple, np.ndarray)):
        raise ValueError(f"labels: expected a list of strings, got {type(labels).__name__}.")
    problems = [
        f"{label!r}, which is not a name"
        for label in labels
        if not isinstance(label, str) or not label.strip()
    ]
    counts = Counter(label for label in labels if isinstance(label, str))
    problems += [f"'{label}' {count} times" for label, count in counts.items() if count > 1]
    if len(labels) != num_classes:
        problems.append(f"{len(labels)} in all")
    if problems:
        raise ValueError(
            f"labels: expected {num_classes} different strings, one for each class, got "
            f"{', '.join(problems)}."
        )
    return [str(label) for label in labels]
