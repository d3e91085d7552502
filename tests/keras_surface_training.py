"""Rows of the table of Keras's methods: `compile`, `fit` and what belongs to them."""

import csv
import math
import re
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
from keras_surface_rows import (
    BACKEND,
    CONFIG,
    INPUTS,
    LABELS,
    REAL,
    SIZES,
    Lacking,
    Refused,
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
    rows_of,
    same_logits,
)

import tfk_transformer as tfk

COMPILE, FIT, DATA, CALLBACKS, LOOPS = (
    "`compile`",
    "`fit`, `evaluate`, `predict`",
    "data",
    "callbacks",
    "your own steps",
)
LOSS = tfk.losses.LabelSmoothedCrossentropy


@row(COMPILE)
def compile_metrics() -> None:
    """`optimizer`, `loss`, `metrics`"""
    model = quick(metrics=[tfk.metrics.TokenAccuracy(), tfk.metrics.Perplexity()])
    figures = model.evaluate(INPUTS, LABELS, batch_size=6, verbose=0, return_dict=True)
    predictions = logits(model)
    close(figures["loss"], loss_of(predictions))
    close(figures["perplexity"], math.exp(loss_of(predictions, smoothing=0)), 1e-4)
    right = predictions.argmax(axis=-1) == LABELS
    close(figures["accuracy"], right[REAL].mean())


@row(COMPILE)
def compile_weighted_metrics() -> None:
    """`weighted_metrics`"""
    weights = np.array([1, 0, 2, 0, 0.5, 3], "float32")
    model = quick(
        weighted_metrics=[tfk.metrics.TokenAccuracy()], metrics=[tfk.metrics.Perplexity()]
    )
    figures = model.evaluate(
        INPUTS, LABELS, sample_weight=weights, batch_size=6, verbose=0, return_dict=True
    )
    predictions = logits(model)
    right = (predictions.argmax(axis=-1) == LABELS)[REAL]
    token_weights = np.broadcast_to(weights[:, None], LABELS.shape)[REAL]
    close(figures["accuracy"], (right * token_weights).sum() / token_weights.sum())
    close(figures["perplexity"], math.exp(loss_of(predictions, smoothing=0)), 1e-4)


@row(COMPILE)
def compile_loss_weights() -> None:
    """`loss_weights`"""
    model = compiled(loss_weights=0.5)
    close(model.evaluate(INPUTS, LABELS, batch_size=6, verbose=0), loss_of(logits(model)) / 2)
    half = compiled(new_model(), optimizer=keras.optimizers.SGD(0.05))
    fit(half)
    fit(model)
    same_logits(half, model, 1e-5)


@row(COMPILE)
def compile_stock_losses() -> None:
    """Keras's crossentropy with `from_logits=True`, `ignore_class=0`"""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model = compiled(loss=loss)
    close(
        model.evaluate(INPUTS, LABELS, batch_size=6, verbose=0),
        loss_of(logits(model), smoothing=0),
        1e-4,
    )
    history = fit(model, epochs=3)["loss"]
    assert history[0] > history[1] > history[2]


@row(COMPILE, Refused(r"loss: expected .*logits.*"))
def compile_loss_of_probabilities() -> None:
    """a loss of probabilities for a model of logits, such as `"sparse_categorical_crossentropy"`"""
    compiled(loss="sparse_categorical_crossentropy")


@row(COMPILE, Refused(r"loss: expected .*probabilities.*"))
def compile_loss_of_logits() -> None:
    """a loss of logits for a model with `output="probabilities"`"""
    compiled(new_model(config=CONFIG.model_copy(update={"output": "probabilities"})))


@row(COMPILE)
def compile_probabilities() -> None:
    """`output="probabilities"` with a loss of probabilities"""
    model = new_model(config=CONFIG.model_copy(update={"output": "probabilities"}))
    compiled(model, loss=LOSS(0.1, from_logits=False))
    close(fit(model, epochs=2)["loss"], fit_losses(2), 1e-4)


@row(COMPILE)
def compile_eagerly() -> None:
    """`run_eagerly=True`"""
    close(fit(compiled(run_eagerly=True), epochs=2)["loss"], fit_losses())


@row(COMPILE, torch=Lacking("steps_per_execution"))
def compile_steps_per_execution() -> None:
    """`steps_per_execution`"""
    one, two = compiled(), compiled(steps_per_execution=2)
    fit(one, batch_size=3, epochs=2)
    fit(two, batch_size=3, epochs=2)
    same_logits(one, two, 1e-5)


@row(COMPILE)
def compile_jit() -> None:
    """`jit_compile=True`"""
    close(fit(compiled(jit_compile=True), epochs=2)["loss"], fit_losses())


@row(COMPILE)
def compile_auto_scale_loss() -> None:
    """`auto_scale_loss`: `LossScaleOptimizer` with `mixed_float16`"""
    scaled = compiled(new_model(dtype="mixed_float16"))
    assert isinstance(scaled.optimizer, keras.optimizers.LossScaleOptimizer)
    plain = compiled(new_model(dtype="mixed_float16"), auto_scale_loss=False)
    assert isinstance(plain.optimizer, keras.optimizers.SGD)
    close(fit(scaled, epochs=2)["loss"], fit_losses(), 3e-3)


@row(COMPILE)
def compile_config() -> None:
    """`get_compile_config`, `compile_from_config`"""
    model = quick(
        optimizer=tfk.optimizers.Adam(tfk.schedules.InverseSquareRoot(0.01, 3)),
        metrics=[tfk.metrics.Perplexity()],
    )
    other = new_model()
    other.compile_from_config(model.get_compile_config())
    close(fit(other, epochs=2)["loss"], fit(model, epochs=2)["loss"])
    assert isinstance(other.loss, LOSS)


@row(COMPILE)
def optimizer_schedules() -> None:
    """schedules of the learning rate, Keras's and `InverseSquareRoot`"""
    for schedule in (
        tfk.schedules.InverseSquareRoot(0.1, 2),
        keras.optimizers.schedules.CosineDecay(0.1, 10),
    ):
        model = quick(optimizer=keras.optimizers.SGD(schedule))
        close(fit(model)["loss"], fit_losses(1))
        close(numpy(model.optimizer.learning_rate), numpy(schedule(1)))


@row(COMPILE)
def optimizer_accumulation() -> None:
    """`gradient_accumulation_steps`"""
    whole, parts = (
        compiled(),
        compiled(optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)),
    )
    equal = np.where(REAL, LABELS, 4)  # so that both halves have equally many tokens
    fit(whole, INPUTS, equal)
    fit(parts, INPUTS, equal, batch_size=3)
    same_logits(whole, parts, 1e-5)


@row(COMPILE)
def optimizer_ema() -> None:
    """`use_ema`, `finalize_variable_values`"""
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)
    model = quick(optimizer=optimizer)
    fit(model, epochs=2)
    optimizer.finalize_variable_values(model.trainable_variables)
    close(numpy(model.projection.kernel), _averaged_kernel())


def _averaged_kernel() -> np.ndarray:
    """Return the moving average of `projection.kernel` over two steps."""
    plain, kernels = quick(), []
    for _ in range(2):
        fit(plain)
        kernels.append(numpy(plain.projection.kernel))
    return (kernels[0] + kernels[1]) / 2


@row(COMPILE)
def optimizer_clipping() -> None:
    """`clipnorm`, `clipvalue`, `global_clipnorm`"""
    for clip in ("clipnorm", "global_clipnorm", "clipvalue"):
        model = _without_embeddings(keras.optimizers.SGD(1.0, **{clip: 0.001}))
        before = [numpy(w) for w in model.trainable_weights]
        fit(model)
        moves = [numpy(w) - old for w, old in zip(model.trainable_weights, before, strict=True)]
        norms = np.array([np.linalg.norm(move) for move in moves])
        size = {
            "clipnorm": norms.max(),
            "global_clipnorm": np.sqrt((norms**2).sum()),
            "clipvalue": max(np.abs(move).max() for move in moves),
        }[clip]
        close(size, 0.001, 1e-5)


def _without_embeddings(optimizer: keras.Optimizer) -> keras.Model:
    """Return a model whose embeddings are frozen.

    Keras clips and squares each slice of a gradient of TensorFlow that consists of slices.
    """
    model = new_model()
    model.source_embedding.trainable = model.target_embedding.trainable = False
    return quick(model, optimizer=optimizer)


@row(COMPILE)
def optimizer_loss_scale() -> None:
    """`LossScaleOptimizer`"""
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=8.0)
    close(fit(compiled(optimizer=optimizer), epochs=2)["loss"], fit_losses())


@row(COMPILE)
def optimizers() -> None:
    """`tfk.optimizers.Adam` and `tfk.optimizers.AdamW` give the steps of Keras's"""
    for ours, theirs in (
        (tfk.optimizers.Adam, keras.optimizers.Adam),
        (tfk.optimizers.AdamW, keras.optimizers.AdamW),
    ):
        models = [_without_embeddings(kind(0.01)) for kind in (ours, theirs)]
        losses = [fit(model, epochs=2)["loss"] for model in models]
        close(*losses)


@row(FIT)
def fit_arrays() -> None:
    """arrays of NumPy and of the backend"""
    model = compiled()
    first = loss_of(logits(model))
    history = fit(model, epochs=3)["loss"]
    close(history[0], first)
    assert history[0] > history[1] > history[2]
    tensors = {name: keras.ops.convert_to_tensor(array) for name, array in INPUTS.items()}
    close(fit(compiled(), tensors, keras.ops.convert_to_tensor(LABELS), epochs=3)["loss"], history)


@row(FIT)
def fit_language_model() -> None:
    """`LanguageModel` and `EncoderClassifier`: `fit`, `evaluate`, `predict`"""
    config = tfk.LanguageModelConfig(vocab_size=17, decoder_layers=1, **SIZES)
    model = compiled(new_model(tfk.LanguageModel, config=config))
    ids = INPUTS["target"]
    first = loss_of(logits(model, ids))
    history = fit(model, ids, LABELS, epochs=2)["loss"]
    close(history[0], first)
    assert history[1] < history[0]
    close(model.predict(ids, verbose=0), logits(model, ids))
    config = tfk.ClassifierConfig(vocab_size=17, num_classes=3, encoder_layers=1, **SIZES)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = compiled(new_model(tfk.EncoderClassifier, config=config), loss=loss)
    labels = np.array([0, 1, 2, 2, 1, 0])
    history = fit(model, ids, labels, epochs=2)["loss"]
    assert history[1] < history[0]
    close(
        model.evaluate(ids, labels, batch_size=6, verbose=0),
        float(loss(labels, keras.ops.convert_to_tensor(logits(model, ids)))),
    )


@row(FIT)
def fit_validation_split() -> None:
    """`validation_split`"""
    history = fit(compiled(), validation_split=1 / 3, batch_size=4)
    model = compiled()
    inputs, labels = rows_of(4, 6)
    fit(model, *rows_of(0, 4))
    close(history["val_loss"], [loss_of(logits(model, inputs), labels)])


@row(FIT)
def fit_validation_data() -> None:
    """`validation_data`, also with sample weights, `validation_freq`"""
    inputs, labels = rows_of(4, 6)
    model = quick()
    history = fit(model, validation_data=(inputs, labels), epochs=2, validation_freq=2)
    close(history["val_loss"], [loss_of(logits(model, inputs), labels)])
    model = quick()
    history = fit(model, validation_data=(inputs, labels, np.array([1.0, 0.0])))
    weights = np.array([[1.0], [0.0]])
    close(history["val_loss"], [loss_of(logits(model, inputs), labels, weights=weights)])


def _row_step(weights: np.ndarray, **arguments: object) -> None:
    """Compare a step in which only some tokens have a weight with the loss and step of these.

    Args:
        weights: the weight of each token, float32 (B, T), 0 or 1.
        **arguments: arguments of `fit` that give these weights.
    """
    model, reference = compiled(), compiled()
    expected = loss_of(logits(model), weights=weights)
    labels = np.where(weights > 0, LABELS, 0)
    share = (labels != 0).sum() / REAL.sum()
    reference.optimizer.learning_rate.assign(0.1 * share)
    close(fit(model, **arguments)["loss"], [expected])
    fit(reference, INPUTS, labels)
    same_logits(model, reference, 1e-5)


@row(FIT)
def fit_row_weights() -> None:
    """`sample_weight` of rows (B,)"""
    weights = np.array([1, 0, 0, 1, 0, 0], "float32")
    _row_step(np.broadcast_to(weights[:, None], LABELS.shape), sample_weight=weights)


@row(FIT)
def fit_token_weights() -> None:
    """`sample_weight` of tokens (B, T)"""
    weights = np.zeros(LABELS.shape, "float32")
    weights[:, 1::2] = 1
    _row_step(weights, sample_weight=weights)


@row(FIT)
def fit_class_weight() -> None:
    """`class_weight`"""
    weights = {token: float(token % 2) for token in range(17)}
    _row_step((LABELS % 2).astype("float32"), class_weight=weights)


@row(FIT)
def fit_epochs() -> None:
    """`initial_epoch`, `steps_per_epoch`, `batch_size`"""
    model = quick()
    result = model.fit(INPUTS, LABELS, epochs=4, initial_epoch=2, verbose=0, batch_size=6)
    assert result.epoch == [2, 3]
    close(result.history["loss"], fit_losses())
    assert len(fit(quick(), steps_per_epoch=1, batch_size=3)["loss"]) == 1


@row(FIT)
def fit_refuses_ids() -> None:
    """ids outside of the vocabulary, floats, texts: one line each"""
    model = quick()
    outside = {**INPUTS, "source": INPUTS["source"] + 10}
    for inputs, labels, line in (
        (outside, LABELS, "source: expected ids from 0 to 12, got "),
        (INPUTS, LABELS + 10, "labels: expected ids from 0 to 16, got "),
        ({**INPUTS, "source": INPUTS["source"] * 1.0}, LABELS, "source: expected integer ids"),
        ({**INPUTS, "source": np.array([["a"]] * 6)}, LABELS, "source: expected "),
        ({"input_ids": INPUTS["source"]}, LABELS, "inputs: expected "),
    ):
        try:
            fit(model, inputs, labels)
        except ValueError as error:
            message = str(error)
        assert message.startswith(line) and "\n" not in message, message


@row(FIT)
def evaluate() -> None:
    """`evaluate`, also with `sample_weight` and over several batches"""
    model = quick()
    predictions = logits(model)
    batches = [loss_of(predictions[rows], LABELS[rows]) for rows in (slice(0, 3), slice(3, 6))]
    close(model.evaluate(INPUTS, LABELS, batch_size=3, verbose=0), np.mean(batches))
    weights = np.array([1, 0, 2, 0, 0.5, 3])
    close(
        model.evaluate(INPUTS, LABELS, sample_weight=weights, batch_size=6, verbose=0),
        loss_of(predictions, weights=weights[:, None]),
    )


@row(FIT)
def predict() -> None:
    """`predict`, `predict_on_batch`"""
    model = new_model()
    close(model.predict(INPUTS, batch_size=4, verbose=0), logits(model))
    close(numpy(model.predict_on_batch(INPUTS)), logits(model))


@row(FIT)
def batch_methods() -> None:
    """`train_on_batch`, `test_on_batch`, also with weights"""
    model = quick()
    close(float(model.train_on_batch(INPUTS, LABELS)), fit_losses(1)[0])
    close(float(model.test_on_batch(INPUTS, LABELS)), fit_losses(2)[1])
    weights = np.array([1, 0, 2, 0, 0.5, 3], "float32")
    expected = loss_of(logits(model), weights=weights[:, None])
    model.reset_metrics()
    close(float(model.test_on_batch(INPUTS, LABELS, sample_weight=weights)), expected)
    model.reset_metrics()
    close(float(model.train_on_batch(INPUTS, LABELS, sample_weight=weights)), expected)


@row(FIT)
def metrics_results() -> None:
    """`get_metrics_result`, `reset_metrics`, `metrics_names`"""
    model = quick(metrics=[tfk.metrics.Perplexity()])
    model.evaluate(INPUTS, LABELS, verbose=0)
    figures = {name: float(value) for name, value in model.get_metrics_result().items()}
    assert set(figures) == {"loss", "perplexity"}
    assert figures["perplexity"] > 1
    model.reset_metrics()
    assert float(model.get_metrics_result()["loss"]) == 0
    assert "loss" in model.metrics_names


@row(DATA)
def data_tensorflow() -> None:
    """`tf.data.Dataset`"""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices((INPUTS, LABELS)).batch(6)
    close(fit(compiled(), data, epochs=2)["loss"], fit_losses())
    weighted = data.map(lambda x, y: (x, y, tf.ones(6)))
    close(fit(compiled(), weighted, epochs=2, validation_data=data)["loss"], fit_losses())
    close(new_model().predict(data, verbose=0), logits(new_model()))


class _Sequence(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple:
        return rows_of(3 * index, 3 * index + 3)


@row(DATA)
def data_sequence() -> None:
    """`keras.utils.PyDataset`"""
    expected = fit(quick(), batch_size=3, epochs=2)["loss"]
    close(fit(quick(), _Sequence(), epochs=2)["loss"], expected, 1e-2)
    close(
        quick().evaluate(_Sequence(), verbose=0),
        quick().evaluate(INPUTS, LABELS, batch_size=3, verbose=0),
    )


@row(DATA)
def data_generator() -> None:
    """generators"""

    def batches():  # type: ignore[no-untyped-def]
        while True:
            yield INPUTS, LABELS

    close(fit(quick(), batches(), epochs=2, steps_per_epoch=1)["loss"], fit_losses())


@row(DATA)
def data_torch() -> None:
    """`torch.utils.data.DataLoader`"""
    import torch

    rows = [
        ({name: array[i] for name, array in INPUTS.items()}, LABELS[i]) for i in range(len(LABELS))
    ]
    data = torch.utils.data.DataLoader(rows, batch_size=6)
    close(fit(quick(), data, epochs=2)["loss"], fit_losses())


@row(DATA)
def data_token_batches() -> None:
    """`TokenBatches`"""
    with tempfile.TemporaryDirectory() as folder:
        lines = ["ab cd", "b a", "dc ba", "ca"] * 3
        for side in ("a", "b"):
            Path(folder, side).write_text("\n".join(lines) + "\n")
        data = tfk.datasets.load(f"files:{folder}/a,{folder}/b")
        tokenizer = tfk.SubwordTokenizer.train(lines, vocab_size=12)
        batches = tfk.TokenBatches(
            data, "train", tokenizer, tokenizer, batch_tokens=24, max_length=12
        )
        size = tokenizer.vocab_size
        config = CONFIG.model_copy(update={"source_vocab_size": size, "target_vocab_size": size})
        history = fit(compiled(new_model(config=config)), batches, epochs=2)["loss"]
        assert history[1] < history[0]


@row(DATA)
def data_target_shift() -> None:
    """targets without the start token, or equal to the labels: one warning"""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(quick(), {**INPUTS, "target": LABELS}, LABELS)
    lines = [str(w.message) for w in caught if re.match("(target|labels): ", str(w.message))]
    assert len(lines) == 1, [str(w.message) for w in caught]


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
    history = fit(quick(), epochs=3, callbacks=[scheduler])["loss"]
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
        fit(quick(), epochs=2, callbacks=callbacks)
        with open(f"{folder}/log.csv") as file:
            losses = [float(line["loss"]) for line in csv.DictReader(file)]
    close(losses, fit_losses())
    assert epochs == [0, 1]


@row(CALLBACKS)
def callback_tensorboard() -> None:
    """`TensorBoard`"""
    with tempfile.TemporaryDirectory() as folder:
        fit(quick(), epochs=2, callbacks=[keras.callbacks.TensorBoard(folder)])
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
    close(kernels[1], _averaged_kernel())


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
    model = compiled(new_model(OwnComputeLoss), optimizer=keras.optimizers.SGD(0.05))
    close(fit(model, epochs=2)["loss"], 2 * np.array(fit_losses()), 1e-4)


class OwnComputeMetrics(tfk.Transformer):
    """Add a figure to the logs."""

    def compute_metrics(self, *arguments: object, **named: object) -> dict:
        return {**super().compute_metrics(*arguments, **named), "seven": 7.0}


@row(LOOPS)
def own_compute_metrics() -> None:
    """a subclass with `compute_metrics`"""
    history = fit(compiled(new_model(OwnComputeMetrics)), epochs=2)
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
    close(fit(compiled(model))["loss"], [fit_losses(1)[0] + penalty])


@row(LOOPS, jax=Refused("activity_regularizer: expected .*"))
def activity_regularizer() -> None:
    """`activity_regularizer` of the model"""
    model = new_model(activity_regularizer=keras.regularizers.L2(0.1))
    penalty = 0.1 * (logits(model) ** 2).sum() / 6
    close(fit(compiled(model))["loss"], [fit_losses(1)[0] + penalty], 1e-4)


@row(LOOPS)
def freezing() -> None:
    """`trainable = False` of layers"""
    model = new_model()
    model.encoder.trainable = False
    frozen = numpy(model.encoder.layers[0].attention.query_weight)
    count = len(model.trainable_weights)
    compiled(model)
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
