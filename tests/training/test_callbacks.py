import io
import json
import re

import keras
import numpy as np
import pytest
from number_files import write_number_files
from rich.console import Console

from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.training.callbacks import (
    EpochLines,
    History,
    ProgressBar,
    duration,
    moving_averages,
)
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.trainer import train

SMALL = {"model_dim": 8, "ff_dim": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}


def small_recipe(folder):
    """Return a recipe of short epochs, with its data in the folder."""
    return Recipe(
        data=write_number_files(folder / "train", range(200)),
        validation_data=write_number_files(folder / "validation", range(40)),
        preset="tiny",
        options=SMALL,
        vocab_size=60,
        max_length=32,
        batch_tokens=512,
        epochs=3,
        epoch_steps=4,
        warmup_steps=4,
    )


@pytest.fixture
def small(tmp_path):
    return small_recipe(tmp_path)


def history_of(out):
    return json.loads((out / "history.json").read_text())


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """The folder of a training run that measures BLEU, and the lines that it printed."""
    folder, lines = tmp_path_factory.mktemp("evaluated"), []
    evaluating = {"evaluate_every": 2, "monitor": "bleu", "average_of": "best", "average": 1}
    chosen = small_recipe(folder).replace(epochs=4, tensorboard=True, **evaluating)
    train(chosen, folder / "bundle", say=lines.append)
    return folder, lines


def test_bleu_chooses_averaged_epochs(evaluated):
    folder, lines = evaluated
    out = folder / "bundle"
    history = history_of(out)
    bleu = history["val_bleu"]
    assert [value is None for value in bleu] == [True, False, True, False]
    # Each target is a single word, so the loss decides.
    assert bleu[1] == bleu[3] == 0
    best = 2 if history["val_loss"][1] < history["val_loss"][3] else 4
    assert json.loads((out / "metrics.json").read_text())["averaged_epochs"] == [best]
    pattern = (
        r"epoch 2/4: loss \d\.\d{3}, validation \d\.\d{3}, BLEU \d+\.\d\d, [\d,]+ tokens/s, "
        r"learning rate [\d.e-]+, \d+ s, .* left"
    )
    assert any(re.fullmatch(pattern, text) for text in lines), lines
    assert re.fullmatch(rf"4 epochs in .*, best loss \d+\.\d{{3}} after epoch {best}", lines[-1])
    assert sum(line.startswith("note: BLEU is 0.00 in every epoch") for line in lines) == 1


@pytest.mark.long  # two runs, each of which traces a search
def test_undecided_bleu_does_not_stop(small, tmp_path):
    out = tmp_path / "bundle"
    chosen = small.replace(evaluate_every=1, monitor="bleu", patience=1, average_of="best")

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise InterruptedError

    with pytest.raises(InterruptedError):
        train(chosen.replace(epochs=4), out, callbacks=[Stop()], say=lambda line: None)
    train(chosen.replace(epochs=4), out, resume=True, say=lambda line: None)
    history = history_of(out)
    assert history["val_bleu"] == [0.0] * 4
    assert history["val_loss"] == sorted(history["val_loss"], reverse=True)
    assert json.loads((out / "metrics.json").read_text())["averaged_epochs"] == [4]


def test_undecided_bleu_is_noted_once():
    history = History("val_bleu")
    printed = []
    lines = EpochLines(4, history, printed.append)
    lines.on_train_begin()
    figures = {"loss": 1.0, "tokens_per_second": 1.0, "learning_rate": 1.0, "seconds": 1.0}
    for epoch in range(4):
        history.rows.append({**figures, "val_loss": 4.0 - epoch, "val_bleu": 0.0})
        lines.on_epoch_end(epoch)
    assert [line.split(":")[0] for line in printed] == [
        "epoch 1/4",
        "epoch 2/4",
        "note",
        "epoch 3/4",
        "epoch 4/4",
    ]


@pytest.mark.usefixtures("eager_steps")
def test_patience_stops_training(small, tmp_path):
    out = tmp_path / "bundle"
    still = small.replace(
        epochs=9, patience=2, learning_rate=1e-20, optimizer="sgd", average_of="best"
    )
    train(still, out, say=lambda line: None)
    losses = history_of(out)["val_loss"]
    assert losses == [losses[0]] * 3
    assert json.loads((out / "metrics.json").read_text())["averaged_epochs"] == [1]


@pytest.mark.usefixtures("eager_steps")
def test_minutes_limit_ends_training(small, tmp_path):
    train(
        small.replace(epochs=50, minutes=1e-6, validation_data=None),
        tmp_path / "bundle",
        say=lambda line: None,
    )
    assert history_of(tmp_path / "bundle")["epoch"] == [1]


def test_monitoring_needs_validation(small, tmp_path):
    alone = small.replace(validation_data=None, evaluate_every=1, patience=2)
    message = (
        "validation_data: expected pairs for evaluate_every, patience, got none; files:.* "
        "has no validation split."
    )
    with pytest.raises(ValueError, match=message):
        train(alone, tmp_path / "bundle", say=lambda line: None)


class Weights(keras.callbacks.Callback):
    """Keep the weights after each epoch."""

    def __init__(self):
        super().__init__()
        self.epochs = []

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(self.model.get_weights())


class StepWeights(keras.callbacks.Callback):
    """Keep the weights after each training step."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append(self.model.get_weights())


@pytest.mark.usefixtures("eager_steps")
def test_bundle_averages_last_epochs(small, tmp_path):
    weights = Weights()
    translator = train(
        small.replace(average=2, epochs=2, validation_data=None),
        tmp_path / "bundle",
        callbacks=[weights],
        say=lambda line: None,
    )
    for mine, first, second in zip(
        translator.model.get_weights(), *weights.epochs[-2:], strict=True
    ):
        np.testing.assert_allclose(mine, (first + second) / 2, rtol=1e-6, atol=1e-7)


# A training each.
@pytest.mark.parametrize(
    "dtype", [pytest.param("float32", marks=pytest.mark.long), "mixed_float16"]
)
@pytest.mark.usefixtures("eager_steps")
def test_bundle_has_moving_average(small, tmp_path, dtype):
    short = small.replace(ema=0.5, epochs=1, dtype=dtype, validation_data=None)
    weights = StepWeights()
    translator = train(short, tmp_path / "bundle", callbacks=[weights], say=lambda line: None)
    averages = weights.steps[0]  # Keras starts with the first weights themselves
    for step in weights.steps[1:]:
        averages = [
            0.5 * average + 0.5 * weight for average, weight in zip(averages, step, strict=True)
        ]
    changes = [
        np.abs(last - average).max()
        for last, average in zip(weights.steps[-1], averages, strict=True)
    ]
    assert max(changes) > 5e-4  # far more than the tolerance below
    for mine, average in zip(translator.model.get_weights(), averages, strict=True):
        np.testing.assert_allclose(mine, average, rtol=1e-5, atol=1e-7)


def test_moving_averages_are_temporary():
    model = keras.Sequential(
        [keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )
    model.compile(keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5), "mse")
    model.optimizer.build(model.trainable_variables)
    for slope in (1.0, 2.0):
        model.optimizer.apply([np.array([[slope]], "float32")])
    # 1 -> 0 -> -2, and the average, of which the first is the first value itself: 0 -> -1.
    raw = float(model.get_weights()[0][0, 0])
    with moving_averages(model):
        assert float(model.get_weights()[0][0, 0]) == -1.0
    assert float(model.get_weights()[0][0, 0]) == raw == -2.0


def test_tensorboard_gets_translations(evaluated):
    import tensorflow as tf
    from tensorflow.core.util import event_pb2

    folder, _ = evaluated
    actual = {}
    for path in (folder / "bundle.tensorboard").rglob("events*"):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            for value in event_pb2.Event.FromString(record).summary.value:
                actual.setdefault(f"{path.parent.name}/{value.tag}", []).append(value)
    assert {
        "train/epoch_loss",
        "validation/epoch_loss",
        "validation/epoch_bleu",
        "train/epoch_learning_rate",
    } <= set(actual), sorted(actual)
    assert len(actual["validation/epoch_bleu"]) == 2
    assert "→" in actual["validation/translations"][0].tensor.string_val[0].decode()


@pytest.mark.usefixtures("eager_steps")
def test_progress_bar_shows_epoch(small, tmp_path):
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=140)
    train(
        small.replace(epochs=2, validation_data=None),
        tmp_path / "bundle",
        callbacks=[ProgressBar(2, 4, 100, console)],
        say=lambda line: None,
    )
    text = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", output.getvalue())
    assert re.search(
        r"epoch 2/2 .* 4/4 loss \d\.\d{3} +[\d,]+ tokens/s +learning rate 0\.\d+", text
    ), text[-500:]


@pytest.mark.long  # a training
@pytest.mark.usefixtures("eager_steps")
def test_separate_byte_vocabularies(small, tmp_path):
    chosen = small.replace(
        separate_vocabularies=True,
        byte_fallback=True,
        vocab_size=300,
        epochs=1,
        validation_data=None,
    )
    translator = train(chosen, tmp_path / "bundle", say=lambda line: None)
    assert translator.source_tokenizer is not translator.target_tokenizer
    assert translator.model.config.tie_embeddings == "target"
    for tokenizer in (translator.source_tokenizer, translator.target_tokenizer):
        ids = tokenizer.encode(["ein日"])
        assert 3 not in ids[0]
        assert tokenizer.decode(ids) == ["ein日"]
    assert Translator.load(tmp_path / "bundle").translate(["one日"])[0].source == "one日"


@pytest.mark.parametrize(
    ("seconds", "text"), [(7.4, "7 s"), (61, "1 min 1 s"), (7265, "2 h 1 min")]
)
def test_duration_is_readable(seconds, text):
    assert duration(seconds) == text
