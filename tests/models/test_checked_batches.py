"""Ids outside the vocabulary, which all methods of Keras refuse with one sentence."""

import os
import subprocess
import sys

import batch_entry_points
import keras
import numpy as np
import pytest
from batch_entry_points import (
    CONFIG,
    ENTRY_POINTS,
    GOOD,
    INPUTS,
    LABELS,
    SIZES,
    SOURCES,
    TARGETS,
    B,
    Sequence,
    T,
    dataset,
    with_id,
)
from xla_flags import FAST_COMPILATION

from tfk_transformer.config.model_options import ClassifierConfig, LanguageModelConfig
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.registry import make_model


def model_with(loss, config=CONFIG):
    model = make_model(config)
    model.compile("sgd", loss, jit_compile=False)
    return model


@pytest.fixture(scope="module")
def model():
    return model_with(LabelSmoothedCrossentropy(0.1))


@pytest.mark.parametrize(
    ("name", "value"), [*((name, -100) for name in ENTRY_POINTS), ("arrays", TARGETS)]
)
def test_labels_outside_vocabulary(name, value, model):
    message = f"^labels: expected ids from 0 to 30, got {value}; the vocabulary of the "
    with pytest.raises(ValueError, match=message + "configuration has 31 tokens, and padding is 0"):
        ENTRY_POINTS[name](model, (INPUTS, with_id(LABELS, value)))


@pytest.mark.parametrize(
    "enter",
    [
        *ENTRY_POINTS.values(),
        lambda model, bad: model.predict(dataset((GOOD[0],), bad[:1]), verbose=0),
        lambda model, bad: model.predict_on_batch(bad[0]),
    ],
)
def test_inputs_outside_vocabulary(enter, model):
    bad = {**INPUTS, "source": with_id(INPUTS["source"], SOURCES)}
    with pytest.raises(ValueError, match="^source: expected ids from 0 to 28, got 29; "):
        enter(model, (bad, LABELS))


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


@pytest.mark.long  # 15 processor seconds: another process imports JAX and compiles
def test_labels_are_checked_under_jax():
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "XLA_FLAGS": FAST_COMPILATION,
    }
    done = subprocess.run(
        [sys.executable, batch_entry_points.__file__],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
