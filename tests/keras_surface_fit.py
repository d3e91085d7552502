"""Rows of the table of Keras's methods: `fit`, `evaluate`, `predict`, and their data."""

import re
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
from keras_surface_rows import (
    CONFIG,
    INPUTS,
    LABELS,
    REAL,
    SIZES,
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
    rows_of,
    standard,
)

import tfk_transformer as tfk

FIT, DATA = "`fit`, `evaluate`, `predict`", "data"


@row(FIT)
def fit_arrays() -> None:
    """arrays of NumPy and of the backend"""
    model = standard()
    first = loss_of(logits(model))
    history = fit(model, epochs=3)["loss"]
    close(history[0], first)
    assert history[0] > history[1] > history[2]
    tensors = {name: keras.ops.convert_to_tensor(array) for name, array in INPUTS.items()}
    close(fit(standard(), tensors, keras.ops.convert_to_tensor(LABELS), epochs=3)["loss"], history)


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
    history = fit(standard(), validation_split=1 / 3, batch_size=4)
    model = standard()
    fit(model, *rows_of(0, 4), batch_size=4)
    close(history["val_loss"], [loss_of(logits(model)[4:], LABELS[4:])])


@row(FIT)
def fit_validation_data() -> None:
    """`validation_data`, also with sample weights, `validation_freq`"""
    inputs, labels = rows_of(4, 6)
    model = standard()
    history = fit(model, validation_data=(inputs, labels), epochs=2, validation_freq=2)
    close(history["val_loss"], [loss_of(logits(model)[4:], labels)])
    model = standard()
    history = fit(model, validation_data=(inputs, labels, np.array([1.0, 0.0])))
    weights = np.array([[1.0], [0.0]])
    close(history["val_loss"], [loss_of(logits(model)[4:], labels, weights=weights)])


def _row_step(model: keras.Model, weights: np.ndarray, **arguments: object) -> None:
    """Compare a step in which only some tokens have a weight with the loss and step of these.

    Args:
        model: a model of `compiled`.
        weights: the weight of each token, float32 (B, T), 0 or 1.
        **arguments: arguments of `fit` that give these weights.
    """
    expected = loss_of(logits(model), weights=weights)
    close(fit(model, **arguments)["loss"], [expected])
    actual = logits(model)
    labels = np.where(weights > 0, LABELS, 0)
    share = (labels != 0).sum() / REAL.sum()
    reference = standard()
    reference.optimizer.learning_rate.assign(0.1 * share)
    fit(reference, INPUTS, labels)
    close(actual, logits(reference))


@row(FIT)
def fit_row_weights() -> None:
    """`sample_weight` of rows (B,)"""
    weights = np.array([1, 0, 0, 1, 0, 0], "float32")
    by_token = np.broadcast_to(weights[:, None], LABELS.shape)
    _row_step(standard(), by_token, sample_weight=weights)


@row(FIT)
def fit_token_weights() -> None:
    """`sample_weight` of tokens (B, T)"""
    weights = np.zeros(LABELS.shape, "float32")
    weights[:, 1::2] = 1
    _row_step(compiled(), weights, sample_weight=weights)


@row(FIT)
def fit_class_weight() -> None:
    """`class_weight`"""
    weights = {token: float(token % 2) for token in range(17)}
    _row_step(quick(), (LABELS % 2).astype("float32"), class_weight=weights)


@row(FIT)
def fit_epochs() -> None:
    """`initial_epoch`, `steps_per_epoch`, `batch_size`"""
    model = standard()
    result = model.fit(INPUTS, LABELS, epochs=4, initial_epoch=2, verbose=0, batch_size=6)
    assert result.epoch == [2, 3]
    close(result.history["loss"], fit_losses())
    assert len(fit(standard(), steps_per_epoch=1, batch_size=3)["loss"]) == 1


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
    model = standard()
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
    model = standard()
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
    close(fit(standard(), data, epochs=2)["loss"], fit_losses())
    weighted = data.map(lambda x, y: (x, y, tf.ones(6)))
    close(fit(standard(), weighted, epochs=2, validation_data=data)["loss"], fit_losses())
    close(standard().predict(data, verbose=0), logits(standard()))


class _Sequence(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple:
        return rows_of(3 * index, 3 * index + 3)


@row(DATA)
def data_sequence() -> None:
    """`keras.utils.PyDataset`"""
    expected = fit(standard(), batch_size=3, epochs=2)["loss"]
    close(fit(standard(), _Sequence(), epochs=2)["loss"], expected, 1e-2)
    close(
        standard().evaluate(_Sequence(), verbose=0),
        standard().evaluate(INPUTS, LABELS, batch_size=3, verbose=0),
    )


@row(DATA)
def data_generator() -> None:
    """generators"""

    def batches():  # type: ignore[no-untyped-def]
        while True:
            yield INPUTS, LABELS

    close(fit(standard(), batches(), epochs=2, steps_per_epoch=1)["loss"], fit_losses())


@row(DATA)
def data_torch() -> None:
    """`torch.utils.data.DataLoader`"""
    import torch

    rows = [
        ({name: array[i] for name, array in INPUTS.items()}, LABELS[i]) for i in range(len(LABELS))
    ]
    data = torch.utils.data.DataLoader(rows, batch_size=6)
    close(fit(standard(), data, epochs=2)["loss"], fit_losses())


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
