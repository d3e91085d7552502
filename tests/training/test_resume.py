"""A training run that is killed, or that meets a full disk or a loss of NaN, loses nothing that was
saved.
"""

import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from number_files import write_number_files

from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.training import trainer
from tfk_transformer.training.checkpoints import Checkpoints
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.trainer import train

EPOCHS, STEPS, TEST_STEPS = 4, 5, 5
TINY = {"model_dim": 8, "ff_dim": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
SETTINGS = {
    "preset": "tiny",
    "options": TINY,
    "dropout": 0.3,
    "vocab_size": 60,
    "max_length": 32,
    "batch_tokens": 256,
    "epochs": EPOCHS,
    "epoch_steps": STEPS,
    "learning_rate": 1e-2,
    "warmup_steps": 4,
    "subword_sampling": 0.5,
    "average": 2,
    "ema": 0.9,
    "accumulate": 2,
    "deterministic": True,
}


class Killer(keras.callbacks.Callback):
    """End the process by SIGKILL at a certain point.

    Args:
        point: ("step" or "test", epoch, batch), or ("save", file, "open" or "rename"): when a file
            whose name begins so is opened for writing, or put in place.
    """

    def __init__(self, point):
        super().__init__()
        self.point = point
        if point[0] == "save":
            sys.addaudithook(self._hear)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self._reach("step", self.epoch, batch)

    def on_test_batch_end(self, batch, logs=None):
        self._reach("test", self.epoch, batch)

    def _hear(self, event, arguments):
        if event == "open" and "w" in str(arguments[1]):
            self._reach("save", Path(str(arguments[0])).name[: len(self.point[1])], "open")
        if event == "os.rename":
            self._reach("save", Path(str(arguments[1])).name[: len(self.point[1])], "rename")

    def _reach(self, *point):
        if point == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


def run_training(out, settings, resume, point):
    """Train in a process of its own; `point` is where it is killed."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    callbacks = [Killer(point)] if point else ()
    # One tower, which traces a step once.
    options = {"towers": False, "say": lambda line: None}
    train(Recipe(**settings), out, resume=resume, callbacks=callbacks, **options)


def draw_points() -> list[tuple]:
    """Ten points: in steps, in evaluations, in saves; a training killed at one begins the same
    epoch again, and comes to the next.
    """
    draw = random.Random(7)
    steps = [("step", epoch, draw.randrange(STEPS)) for epoch in range(EPOCHS)]
    tests = [("test", epoch, draw.randrange(TEST_STEPS)) for epoch in range(EPOCHS)]
    # The first file of that kind that a process writes is of the epoch that it began with.
    saves = [
        ("save", name, moment) for name in ("weights", "state") for moment in ("open", "rename")
    ]
    return [
        steps[0],
        tests[0],
        saves[0],
        saves[3],
        steps[1],
        saves[2],
        steps[2],
        tests[2],
        steps[3],
        saves[1],
    ]


@pytest.fixture(scope="module")
def processes():
    """Processes that begin with TensorFlow imported, which takes longer than the trainings."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["tfk_transformer.training.trainer", "tensorflow", "tensorflow_text"]
    )
    return context


# A whole training, and one that is killed and resumed ten times.
@pytest.mark.long
def test_killed_training_resumes_exactly(processes, tmp_path):
    (tmp_path / "data").mkdir()
    data = write_number_files(tmp_path / "data", range(300))
    settings = {**SETTINGS, "data": data, "validation_data": data}

    def run(out, point=None, resume=False):
        process = processes.Process(
            target=run_training, args=(tmp_path / out, settings, resume, point)
        )
        process.start()
        process.join(300)
        return process.exitcode

    assert run("whole") == 0
    for point in draw_points():
        assert (
            run("broken", point, resume=(tmp_path / "broken.training").exists()) == -signal.SIGKILL
        ), point
    assert run("broken", resume=True) == 0
    whole, broken = (Translator.load(tmp_path / name) for name in ("whole", "broken"))
    for one, other in zip(whole.model.get_weights(), broken.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    histories = [
        json.loads((tmp_path / name / "history.json").read_text()) for name in ("whole", "broken")
    ]
    assert histories[0]["loss"] == histories[1]["loss"]
    assert histories[0]["val_loss"] == histories[1]["val_loss"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "data", "whole"]


def test_killed_fine_tuning_resumes(processes, tmp_path):
    """It ends with the weights of one that never was killed; another bundle in the place of the
    first is refused.
    """
    saved = Path(__file__).parents[1] / "saved_files"
    data = f"files:{saved / 'en.txt'},{saved / 'de.txt'}"
    settings = {
        "data": data,
        "start": str(tmp_path / "start"),
        "freeze": ("encoder",),
        "dropout": 0.3,
        "epochs": 3,
        "average": 2,
    }
    settings |= {
        "epoch_steps": 3,
        "warmup_steps": 1,
        "learning_rate": 1e-2,
        "deterministic": True,
        "batch_tokens": 256,
    }
    shutil.copytree(saved / "bundle", tmp_path / "start")

    def run(out, point=None, resume=False):
        process = processes.Process(
            target=run_training, args=(tmp_path / out, settings, resume, point)
        )
        process.start()
        process.join(300)
        return process.exitcode

    assert run("whole") == 0
    assert run("broken", ("step", 1, 1)) == -signal.SIGKILL
    others = tmp_path / "whole" / "model.safetensors"
    shutil.copy(others, tmp_path / "start" / "model.safetensors")
    with pytest.raises(
        ValueError,
        match=(
            "resume: expected in .*start the bundle that .*broken.training was started from, "
            "got another model.safetensors"
        ),
    ):
        train(Recipe(**settings), tmp_path / "broken", resume=True)
    (tmp_path / "other").symlink_to(saved / "bundle")
    with pytest.raises(
        ValueError,
        match="resume: expected the recipe that .* was started with, which had .*start='.*/start'",
    ):
        train(
            Recipe(**{**settings, "start": str(tmp_path / "other")}),
            tmp_path / "broken",
            resume=True,
        )
    shutil.rmtree(tmp_path / "start")
    assert run("broken", resume=True) == 0
    start, whole, broken = (
        Translator.load(path).model.named_weights
        for path in (saved / "bundle", tmp_path / "whole", tmp_path / "broken")
    )
    for name, weight in whole.items():
        np.testing.assert_array_equal(weight, broken[name])
        assert np.array_equal(weight, start[name]) == name.startswith("encoder/")


@pytest.fixture
def small(tmp_path):
    """A recipe of four short epochs."""
    data = write_number_files(tmp_path, range(300))
    return Recipe(**{**SETTINGS, "data": data, "validation_data": data, "deterministic": False})


class Spoils(keras.callbacks.Callback):
    """Make every weight NaN in the third epoch, as a wild step would."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            for variable in self.model.trainable_variables:
                variable.assign(np.full(variable.shape, np.nan))


# Where BLEU decides, and was not measured yet, there is no epoch to take the weights of.
UNDECIDED = {"average_of": "best", "monitor": "bleu", "evaluate_every": EPOCHS}


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param({"validation_data": None}, id="the last epochs"),
        # The last evaluation also traces a search.
        pytest.param(UNDECIDED, id="the best, none of them known", marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("eager_steps")
def test_nan_loss_keeps_last_bundle(small, tmp_path, choice):
    # An update takes two steps.
    small, out = small.replace(epoch_steps=2, **choice), tmp_path / "bundle"
    with pytest.raises(
        FloatingPointError, match="the loss became nan in epoch 3, at update 2, learning rate 0.00"
    ) as caught:
        train(small, out, callbacks=[Spoils()], say=lambda line: None)
    assert str(caught.value).endswith(f"; {out} holds the model as it was after epoch 2")
    assert all(np.isfinite(weight).all() for weight in Translator.load(out).model.get_weights())
    train(small, out, resume=True, say=lambda line: None)
    assert len(json.loads((out / "history.json").read_text())["loss"]) == EPOCHS


@pytest.mark.usefixtures("eager_steps")
def test_nan_error_names_learning_rate(small, tmp_path):
    wild = small.replace(learning_rate=1e38, optimizer="sgd", clip_norm=0.0, ema=None, accumulate=1)
    with pytest.raises(
        FloatingPointError,
        match=r"in epoch 1, at update \d, learning rate .*e\+37; there is no earlier model",
    ):
        train(wild, tmp_path / "bundle", say=lambda line: None)


class Fills(keras.callbacks.Callback):
    """Fill a disk up when the third epoch begins."""

    def __init__(self, folder):
        super().__init__()
        self.ballast = folder / "ballast"

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            try:
                with self.ballast.open("wb") as file:
                    while True:
                        file.write(bytes(4096))
                        file.flush()
            except OSError:
                pass


# Trains until the disk is full, and again; test_nan_loss_keeps_last_bundle is its short case.
@pytest.mark.long
@pytest.mark.usefixtures("eager_steps")
def test_full_disk_keeps_last_bundle(small, small_disk, monkeypatch):
    monkeypatch.setattr(trainer, "WRITE_EVERY", 0.0)
    plain = {"validation_data": None, "ema": None, "accumulate": 1, "epoch_steps": 2}
    small, out = small.replace(**plain), small_disk / "bundle"
    fills = Fills(small_disk)
    with pytest.raises(
        ValueError,
        match=(
            "no space left on the disk; what was saved before is as it was. Free some, and "
            "--resume."
        ),
    ):
        train(small, out, callbacks=[fills], say=lambda line: None)
    assert np.isfinite(Translator.load(out).score(["one"], ["eins"])).all()
    assert len(json.loads((out / "history.json").read_text())["loss"]) == 2
    fills.ballast.unlink()
    train(small, out, resume=True, say=lambda line: None)
    assert len(json.loads((out / "history.json").read_text())["loss"]) == EPOCHS
    assert sorted(path.name for path in small_disk.iterdir()) == ["bundle"]


def test_other_models_state_is_refused(small, tmp_path):
    from tfk_transformer.models.registry import make_model

    first, second = (
        make_model(small.replace(options={**TINY, "model_dim": width}).config(60))
        for width in (8, 16)
    )
    for model in (first, second):
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
    checkpoints = Checkpoints(tmp_path)
    about = {"rows": [{"val_loss": 1.5}], "seconds": 2.5}
    checkpoints.save(first, about)
    assert checkpoints.restore(first) == about
    with pytest.raises(
        ValueError, match="state.npz .* expected the state of this model, got that of another"
    ):
        checkpoints.restore(second)


@pytest.mark.parametrize(
    "content", [b"", b"no archive", "half", "a list"], ids=["empty", "text", "half", "other values"]
)
def test_broken_state_is_refused(tmp_path, content):
    checkpoints = Checkpoints(tmp_path)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    checkpoints.save(model, {"rows": [], "seconds": 1.5})
    path = tmp_path / "state.npz"
    if content == "a list":
        np.savez(path, **{"0": np.array([None], object), "about": np.array("[")})
    else:
        path.write_bytes(path.read_bytes()[:900] if content == "half" else content)
    with pytest.raises(
        ValueError,
        match=r"^resume: the state in .*state.npz does not load: .*; remove it to start anew",
    ):
        checkpoints.restore(model)
