"""The methods of Keras that batches enter a model by, and small batches for them.

KERAS_BACKEND=jax python tests/models/batch_entry_points.py

checks that JAX refuses labels outside the vocabulary too.
"""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import START_ID
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.registry import make_model

B, S, T, SOURCES, TARGETS = 3, 5, 7, 29, 31
SIZES = {"model_dim": 8, "num_heads": 2, "ff_dim": 11, "dropout": 0.0, "max_length": 13}
CONFIG = TransformerConfig(
    source_vocab_size=SOURCES,
    target_vocab_size=TARGETS,
    encoder_layers=1,
    decoder_layers=1,
    **SIZES,
)
INPUTS = {"source": np.full((B, S), 4, "int32"), "target": np.full((B, T), 5, "int32")}
INPUTS["target"][:, 0] = START_ID
LABELS = np.full((B, T), 6, "int32")


class Sequence(keras.utils.PyDataset):
    def __init__(self, *batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def with_id(array, value):
    changed = array.copy()
    changed[1, 2] = value
    return changed


def dataset(*batches):
    data = [tf.data.Dataset.from_tensors(batch) for batch in batches]
    return functools.reduce(tf.data.Dataset.concatenate, data)


GOOD = (INPUTS, LABELS)
ENTRY_POINTS = {
    "arrays": lambda model, bad: model.fit(*bad, verbose=0),
    "validation": lambda model, bad: model.fit(*GOOD, validation_data=bad, verbose=0),
    "evaluate": lambda model, bad: model.evaluate(*bad, verbose=0),
    "dataset": lambda model, bad: model.fit(dataset(GOOD, bad), shuffle=False, verbose=0),
    "validation dataset": lambda model, bad: model.fit(
        dataset(GOOD), validation_data=dataset(bad), shuffle=False, verbose=0
    ),
    "evaluate dataset": lambda model, bad: model.evaluate(dataset(GOOD, bad), verbose=0),
    "sequence": lambda model, bad: model.fit(Sequence(GOOD, bad), verbose=0),
    "generator": lambda model, bad: model.fit((b for b in [GOOD, bad]), shuffle=False, verbose=0),
    "train_on_batch": lambda model, bad: model.train_on_batch(*bad),
    "test_on_batch": lambda model, bad: model.test_on_batch(*bad),
}


def check_labels() -> None:
    """Check that labels outside the vocabulary are refused before they are trained on."""
    model = make_model(CONFIG)
    model.compile("sgd", LabelSmoothedCrossentropy(0.1))
    for name in ("evaluate dataset", "dataset", "sequence", "train_on_batch"):
        with pytest.raises(ValueError, match="^labels: expected ids from 0 to 30, got -100; "):
            ENTRY_POINTS[name](model, (INPUTS, with_id(LABELS, -100)))


if __name__ == "__main__":
    check_labels()
