"""Rows of the table of Keras's methods: `compile` and its optimizers."""

import math

import keras
import numpy as np
from keras_surface_rows import (
    BACKEND,
    CONFIG,
    INPUTS,
    LABELS,
    REAL,
    Lacking,
    Refused,
    averaged_kernel,
    close,
    compiled,
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

COMPILE = "`compile`"
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
    model, half = quick(loss_weights=0.5), standard()
    half.optimizer.learning_rate.assign(0.05)
    expected = loss_of(logits(model)) / 2
    close(fit(model)["loss"], [expected])
    fit(half)
    same_logits(half, model, 1e-5)


@row(COMPILE)
def compile_stock_losses() -> None:
    """Keras's crossentropy with `from_logits=True`, `ignore_class=0`"""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model = compiled(loss=loss)
    expected = loss_of(logits(model), smoothing=0)
    history = fit(model, epochs=3)["loss"]
    close(history[0], expected, 1e-4)
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
    one, two = standard(), compiled(steps_per_execution=2)
    fit(one, batch_size=3, epochs=2)
    fit(two, batch_size=3, epochs=2)
    same_logits(one, two, 1e-5)


@row(COMPILE)
def compile_jit() -> None:
    """`jit_compile=True`"""
    model = compiled(jit_compile=True)
    # PyTorch compiles a second step again, which takes a minute.
    close(fit(model)["loss"], fit_losses(1))
    close(loss_of(logits(model)), fit_losses(2)[1])


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
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    # A step of TensorFlow that runs twice takes less time than its trace.
    whole, parts = standard(), compiled(optimizer=optimizer, run_eagerly=BACKEND == "tensorflow")
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
    close(numpy(model.projection.kernel), averaged_kernel())


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
    close(fit(quick(optimizer=optimizer), epochs=2)["loss"], fit_losses())


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
