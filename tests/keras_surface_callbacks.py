"""Rows of the table of Keras's methods: callbacks, and your own steps."""

import csv
import tempfile
from pathlib import Path

import keras
import numpy as np
from keras_surface_rows import (
    BACKEND,
    CONFIG,
    INPUTS,
    LABELS,
    Lacking,
    Refused,
    averaged_kernel,
    close,
    compiled,
    differ,
    fit,
    fit_losses,
    logits,
    loss_of,
    new_model,
    numpy,
    quick,
    row,
    same_logits,
    standard,
)

import tfk_transformer as tfk

CALLBACKS, LOOPS = "callbacks", "your own steps"
LOSS = tfk.losses.LabelSmoothedCrossentropy


@row(CALLBACKS)
def callback_early_stopping() -> None:
    """`EarlyStopping(restore_best_weights=True)`, `TerminateOnNaN`"""
    model = quick(optimizer=keras.optimizers.SGD(-0.1))  # each step makes the loss greater
    best = logits(model)
    stop = keras.callbacks.EarlyStopping(
        "val_loss", patience=1, restore_best_weights=True, start_from_epoch=0
    )
    history = fit(model, validation_data=(INPUTS, LABELS), epochs=9, callbacks=[stop])["val_loss"]
    assert len(history) == 2
    differ(logits(model), best)  # the best are the weights after the first step
    close(loss_of(logits(model)), history[0])
    model = quick(optimizer=keras.optimizers.SGD(float("nan")))
    history = fit(model, epochs=5, callbacks=[keras.callbacks.TerminateOnNaN()])["loss"]
    assert len(history) == 2
    assert np.isnan(history[1])


@row(CALLBACKS)
def callback_checkpoint() -> None:
    """`ModelCheckpoint`, whole models and weights"""
    with tempfile.TemporaryDirectory() as folder:
        whole = keras.callbacks.ModelCheckpoint(f"{folder}/m.keras")
        weights = keras.callbacks.ModelCheckpoint(f"{folder}/m.weights.h5", save_weights_only=True)
        model = quick()
        fit(model, epochs=2, callbacks=[whole, weights])
        loaded = keras.saving.load_model(f"{folder}/m.keras")
        other = tfk.Transformer(CONFIG)
        other.load_weights(f"{folder}/m.weights.h5")
    same_logits(loaded, model)
    same_logits(other, model)
    close(fit(loaded, epochs=1)["loss"], fit(model, epochs=1)["loss"])


class _Interruption(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        if epoch == 2:
            raise KeyboardInterrupt


@row(CALLBACKS)
def callback_backup() -> None:
    """`BackupAndRestore`, for a model that is not built yet as well"""
    with tempfile.TemporaryDirectory() as folder:
        model = quick()
        try:
            backup = keras.callbacks.BackupAndRestore(folder)
            fit(model, epochs=3, callbacks=[backup, _Interruption()])
        except KeyboardInterrupt:
            pass
        keras.utils.set_random_seed(5)
        resumed = quick(tfk.Transformer(CONFIG))
        history = fit(resumed, epochs=3, callbacks=[keras.callbacks.BackupAndRestore(folder)])
    close(history["loss"], fit_losses(3)[2:])


@row(CALLBACKS)
def callback_learning_rate() -> None:
    """`ReduceLROnPlateau`, `LearningRateScheduler`"""
    model = quick(optimizer=keras.optimizers.SGD(1e-9))
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1.0)
    fit(model, epochs=3, callbacks=[plateau])
    close(float(model.optimizer.learning_rate) * 1e9, 0.25)
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 * (epoch == 1))
    history = fit(standard(), epochs=3, callbacks=[scheduler])["loss"]
    close(history[1], history[0])
    close(history[2], fit_losses(2)[1])


@row(CALLBACKS)
def callback_logs() -> None:
    """`CSVLogger`, `LambdaCallback`"""
    epochs = []
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [
            keras.callbacks.CSVLogger(f"{folder}/log.csv"),
            keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch)),
        ]
        fit(standard(), epochs=2, callbacks=callbacks)
        with open(f"{folder}/log.csv") as file:
            losses = [float(line["loss"]) for line in csv.DictReader(file)]
    close(losses, fit_losses())
    assert epochs == [0, 1]


@row(CALLBACKS)
def callback_tensorboard() -> None:
    """`TensorBoard`"""
    with tempfile.TemporaryDirectory() as folder:
        fit(standard(), epochs=2, callbacks=[keras.callbacks.TensorBoard(folder)])
        assert list(Path(folder).rglob("events*"))


@row(CALLBACKS)
def callback_ema() -> None:
    """`SwapEMAWeights`"""
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)
    model = quick(optimizer=optimizer)
    kernels = []
    read = keras.callbacks.LambdaCallback(
        on_test_begin=lambda logs: kernels.append(numpy(model.projection.kernel))
    )
    swap = keras.callbacks.SwapEMAWeights()
    fit(model, epochs=2, validation_data=(INPUTS, LABELS), callbacks=[swap, read])
    close(kernels[1], averaged_kernel())


class OwnTrainStep(tfk.Transformer):
    """Count the steps."""

    steps = 0

    def train_step(self, *arguments: object) -> object:
        type(self).steps += 1
        return super().train_step(*arguments)


@row(LOOPS)
def own_train_step() -> None:
    """a subclass with `train_step`"""
    OwnTrainStep.steps = 0
    close(fit(compiled(new_model(OwnTrainStep)), epochs=2)["loss"], fit_losses())
    assert OwnTrainStep.steps > 0


class OwnComputeLoss(tfk.Transformer):
    """Double the loss."""

    def compute_loss(self, *arguments: object, **named: object) -> object:
        return 2.0 * super().compute_loss(*arguments, **named)


@row(LOOPS)
def own_compute_loss() -> None:
    """a subclass with `compute_loss`"""
    model = quick(new_model(OwnComputeLoss), optimizer=keras.optimizers.SGD(0.05))
    close(fit(model, epochs=2)["loss"], 2 * np.array(fit_losses()), 1e-4)


class OwnComputeMetrics(tfk.Transformer):
    """Add a figure to the logs."""

    def compute_metrics(self, *arguments: object, **named: object) -> dict:
        return {**super().compute_metrics(*arguments, **named), "seven": 7.0}


@row(LOOPS)
def own_compute_metrics() -> None:
    """a subclass with `compute_metrics`"""
    history = fit(quick(new_model(OwnComputeMetrics)), epochs=2)
    close(history["loss"], fit_losses())
    close(history["seven"], [7.0, 7.0])


class OwnAddLoss(tfk.Transformer):
    """Add a loss of the logits."""

    def call(self, inputs: object, training: bool | None = None) -> object:
        predictions = super().call(inputs, training)
        self.add_loss(0.5 + 0.0 * keras.ops.mean(predictions))
        return predictions


@row(LOOPS)
def own_add_loss() -> None:
    """`add_loss` in a subclass"""
    close(fit(compiled(new_model(OwnAddLoss)), epochs=2)["loss"], np.array(fit_losses()) + 0.5)


@row(LOOPS)
def weight_regularizer() -> None:
    """`regularizer` of a weight"""
    model = new_model()
    model.projection.kernel.regularizer = keras.regularizers.L2(0.1)
    penalty = 0.1 * (numpy(model.projection.kernel) ** 2).sum()
    close([float(loss) for loss in model.losses], [penalty])
    close(fit(quick(model))["loss"], [fit_losses(1)[0] + penalty])


@row(LOOPS, jax=Refused("activity_regularizer: expected .*"))
def activity_regularizer() -> None:
    """`activity_regularizer` of the model"""
    model = new_model(activity_regularizer=keras.regularizers.L2(0.1))
    penalty = 0.1 * (logits(model) ** 2).sum() / 6
    close(fit(quick(model))["loss"], [fit_losses(1)[0] + penalty], 1e-4)


@row(LOOPS)
def freezing() -> None:
    """`trainable = False` of layers"""
    model = new_model()
    model.encoder.trainable = False
    frozen = numpy(model.encoder.layers[0].attention.query_weight)
    count = len(model.trainable_weights)
    quick(model)
    before = numpy(model.projection.kernel)
    fit(model, epochs=2)
    assert len(model.weights) - count == len(model.encoder.weights)
    close(numpy(model.encoder.layers[0].attention.query_weight), frozen, 0)
    differ(numpy(model.projection.kernel), before)


@row(LOOPS)
def own_loop() -> None:
    """a loop of your own: `GradientTape`, `jax.grad` with `stateless_call`, `backward`"""
    model, loss = new_model(), LOSS(0.1)
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    losses = [float(_STEPS[BACKEND](model, loss, optimizer)) for _ in range(2)]
    close(losses, fit_losses())


def _tape_step(model: keras.Model, loss: keras.Loss, optimizer: keras.Optimizer) -> object:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = loss(LABELS, model(INPUTS, training=True))
    optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
    return value


def _jax_step(model: keras.Model, loss: keras.Loss, optimizer: keras.Optimizer) -> object:
    import jax

    state = [
        [v.value for v in part]
        for part in (model.trainable_variables, model.non_trainable_variables)
    ]

    def value_of(trainable: list, other: list) -> object:
        predictions, other = model.stateless_call(trainable, other, INPUTS, training=True)
        return loss(LABELS, predictions)

    value, gradients = jax.jit(jax.value_and_grad(value_of))(*state)
    slots = [v.value for v in optimizer.variables]
    trainable, slots = optimizer.stateless_apply(slots, gradients, state[0])
    for variable, new in zip(model.trainable_variables, trainable, strict=True):
        variable.assign(new)
    return value


def _torch_step(model: keras.Model, loss: keras.Loss, optimizer: keras.Optimizer) -> object:
    model.zero_grad()
    value = loss(LABELS, model(INPUTS, training=True))
    value.backward()
    optimizer.apply([v.value.grad for v in model.trainable_variables], model.trainable_variables)
    return value


_STEPS = {"tensorflow": _tape_step, "jax": _jax_step, "torch": _torch_step}


@row(LOOPS)
def stateless_call() -> None:
    """`stateless_call`, `get_state_tree`, `set_state_tree`"""
    model, other = (
        compiled(new_model(name="named")),
        compiled(tfk.Transformer(CONFIG, name="named")),
    )
    other.build()
    predictions, _ = model.stateless_call(
        [v.value for v in model.trainable_variables],
        [v.value for v in model.non_trainable_variables],
        INPUTS,
    )
    close(numpy(predictions), logits(model))
    other.set_state_tree(model.get_state_tree())
    same_logits(other, model)


@row(
    LOOPS,
    tensorflow=Lacking("custom_gradient decorator"),
    jax=Lacking("_error_repr|TracerBool"),
)
def rematerialization() -> None:
    """`keras.RematScope`"""
    with keras.RematScope(mode="full"):
        model = new_model()
    close(fit(compiled(model), epochs=2)["loss"], fit_losses())
