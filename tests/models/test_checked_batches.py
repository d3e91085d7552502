"""Ids outside the vocabulary, which every door of Keras refuses with one sentence."""

import functools
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfk_transformer.config.model_options import ClassifierConfig, LanguageModelConfig
from tfk_transformer.config.model_options import TransformerConfig as Config
from tfk_transformer.constants import START_ID
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.registry import make_model

B, S, T, SOURCES, TARGETS = 3, 5, 7, 29, 31
SIZES = {"model_dim": 8, "num_heads": 2, "ff_dim": 11, "dropout": 0.0, "max_length": 13}
CONFIG = Config(
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


def model_with(loss, config=CONFIG):
    model = make_model(config)
    model.compile("sgd", loss, jit_compile=False)
    return model


@pytest.fixture(scope="module")
def model():
    return model_with(LabelSmoothedCrossentropy(0.1))


def dataset(*batches):
    data = [tf.data.Dataset.from_tensors(batch) for batch in batches]
    return functools.reduce(tf.data.Dataset.concatenate, data)


GOOD = (INPUTS, LABELS)
DOORS = {
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


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
@pytest.mark.parametrize("value", [-100, TARGETS])
def test_labels_outside_vocabulary(door, value, model):
    message = f"^labels: expected ids from 0 to 30, got {value}; the vocabulary of the "
    with pytest.raises(ValueError, match=message + "configuration has 31 tokens, and padding is 0"):
        door(model, (INPUTS, with_id(LABELS, value)))


@pytest.mark.parametrize(
    "door",
    [
        *DOORS.values(),
        lambda model, bad: model.predict(dataset((GOOD[0],), bad[:1]), verbose=0),
        lambda model, bad: model.predict_on_batch(bad[0]),
    ],
)
def test_inputs_outside_vocabulary(door, model):
    bad = {**INPUTS, "source": with_id(INPUTS["source"], SOURCES)}
    with pytest.raises(ValueError, match="^source: expected ids from 0 to 28, got 29; "):
        door(model, (bad, LABELS))


def test_dataset_of_single_inputs():
    config = LanguageModelConfig(vocab_size=SOURCES, decoder_layers=1, **SIZES)
    model = make_model(config)
    bad = with_id(INPUTS["source"], -1)
    for data in (dataset(bad), dataset((bad,)), Sequence(bad), (x for x in [bad])):
        with pytest.raises(ValueError, match="^inputs: expected ids from 0 to 28, got -1; "):
            model.predict(data, verbose=0)


def test_xla_does_not_hide_bad_ids():
    model = make_model(CONFIG)
    model.compile("sgd", LabelSmoothedCrossentropy(0.1), jit_compile=True)
    with pytest.raises(ValueError, match="^labels: expected ids from 0 to 30, got -100; "):
        model.fit(dataset((INPUTS, with_id(LABELS, -100))), shuffle=False, verbose=0)


def test_valid_batches_are_unchanged(model):
    expected = model.predict(INPUTS, verbose=0)
    rows = Sequence(({name: array[:2] for name, array in INPUTS.items()},), (INPUTS,))
    for data in (rows, dataset((INPUTS,))):
        np.testing.assert_allclose(model.predict(data, verbose=0)[-B:], expected, atol=1e-6)
    losses = [model.evaluate(data, verbose=0) for data in (Sequence(GOOD), dataset(GOOD))]
    np.testing.assert_allclose(losses, [model.evaluate(*GOOD, verbose=0)] * 2, atol=1e-6)


def test_sequence_learns_of_epochs(model):
    events = []

    class Counted(Sequence):
        def on_epoch_begin(self):
            events.append("begin")

        def on_epoch_end(self):
            events.append("end")

    keras.Model.fit(model, Counted(GOOD), epochs=2, verbose=0)  # without a check
    expected = list(events)
    events.clear()
    model.fit(Counted(GOOD), epochs=2, verbose=0)
    assert events == expected


def test_classes_outside_range():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    config = ClassifierConfig(vocab_size=SOURCES, num_classes=3, encoder_layers=1, **SIZES)
    message = "^labels: expected ids from 0 to 2, got 3; the classes of the configuration are 3.$"
    with pytest.raises(ValueError, match=message):
        model_with(loss, config).fit(INPUTS["source"], np.array([0, 2, 3]), verbose=0)


def test_ignored_class_is_accepted():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)
    model = model_with(loss)
    history = model.fit(INPUTS, with_id(LABELS, -100), verbose=0).history
    assert np.isfinite(history["loss"]).all()


def test_loss_checks_eager_labels():
    logits = np.zeros((B, T, TARGETS), "float32")
    for value in (-100, TARGETS, np.nan):
        labels = with_id(LABELS.astype("float32"), value)
        with pytest.raises(ValueError, match="^labels: expected ids from 0 to 30, got "):
            LabelSmoothedCrossentropy()(labels, logits)


def test_torch_loader_is_checked(model):
    data = pytest.importorskip("torch.utils.data")
    rows = [({k: v[0] for k, v in INPUTS.items()}, row) for row in with_id(LABELS, -100)]
    loader = data.DataLoader(rows, batch_size=2)
    with pytest.raises(ValueError, match="^labels: expected ids from 0 to 30, got -100; "):
        model.fit(loader, shuffle=False, verbose=0)


JAX_DOORS = """
import numpy as np
import pytest
from test_checked_batches import *

model = make_model(CONFIG)
model.compile("sgd", LabelSmoothedCrossentropy(0.1))
for name in ("evaluate dataset", "dataset", "sequence", "train_on_batch"):
    with pytest.raises(ValueError, match="^labels: expected ids from 0 to 30, got -100; "):
        DOORS[name](model, (INPUTS, with_id(LABELS, -100)))
"""


@pytest.mark.long  # 15 processor seconds: another process imports JAX and compiles
def test_labels_are_checked_under_jax():
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "PYTHONPATH": os.path.dirname(__file__),
    }
    done = subprocess.run(
        [sys.executable, "-c", JAX_DOORS], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
