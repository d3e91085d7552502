"""Inputs that models refuse, each with one sentence that names the argument, the expected and the
received value.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfk_transformer.config.model_options import (
    ClassifierConfig,
    LanguageModelConfig,
    TransformerConfig,
)
from tfk_transformer.constants import START_ID
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import Perplexity, TokenAccuracy
from tfk_transformer.models.checked_model import check_ids, check_same_rows
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.registry import make_model
from tfk_transformer.models.transformer import Transformer

# Each size is a prime of its own, so that swapped axes cannot pass.
B, S, T, SOURCES, TARGETS = 3, 5, 7, 29, 31
SIZES = {"model_dim": 8, "num_heads": 2, "ff_dim": 11, "dropout": 0.0, "max_length": 13}
DECODER = {"decoder_layers": 1, **SIZES}


def ids(rows, length, seed=0):
    return np.random.default_rng(seed).integers(4, 29, (rows, length)).astype("int32")


SOURCE, TARGET = ids(B, S), ids(B, T, seed=1)
TARGET[:, 0] = START_ID
INPUTS = {"source": SOURCE, "target": TARGET}


@pytest.fixture(scope="module")
def transformer():
    model = make_model(
        TransformerConfig(
            source_vocab_size=SOURCES, target_vocab_size=TARGETS, encoder_layers=1, **DECODER
        )
    )
    metrics = [TokenAccuracy(), Perplexity()]
    model.compile(
        "sgd", LabelSmoothedCrossentropy(0.1), metrics=metrics, run_eagerly=False, jit_compile=False
    )
    return model


@pytest.fixture(scope="module")
def language_model():
    return make_model(LanguageModelConfig(vocab_size=SOURCES, **DECODER))


@pytest.fixture(scope="module")
def classifier():
    return make_model(
        ClassifierConfig(vocab_size=SOURCES, num_classes=2, encoder_layers=1, **SIZES)
    )


OF_TWO = r'inputs: expected a dictionary \{"source": ids, "target": ids\}, got a '
RANK = r"source: expected ids of shape \(batch, length\), got shape "
FLOAT = (
    r"source: expected integer ids, got float32; convert them, for instance with "
    r"ids.astype\('int32'\)."
)
VOCABULARY = "; the vocabulary of the configuration has 29 tokens, and padding is 0."
TEXTS = r"encode texts with a tokenizer, for instance with tokenizer.graph_encode\(texts\)\.$"
REFUSED = [
    ([SOURCE, TARGET], OF_TWO + "list of 2; give each array its name."),
    ((SOURCE, TARGET), OF_TWO + "tuple of 2; give each array its name."),
    (SOURCE, OF_TWO.removesuffix("a ") + "a value of type ndarray; "),
    ({"source": SOURCE}, "inputs: expected source, target, got none named target."),
    ({**INPUTS, "mask": SOURCE}, "inputs: expected source, target, source_mask, got 'mask'."),
    ({**INPUTS, "source": SOURCE[0]}, RANK + r"\(5,\); add a batch axis: ids\[None, :\]."),
    (
        {**INPUTS, "source": SOURCE[..., None]},
        RANK + r"\(3, 5, 1\); pass ids, not one-hot vectors or embeddings.",
    ),
    (
        {**INPUTS, "source": SOURCE.tolist()},
        r"source: expected an array or tensor of ids \(batch, length\), got a list of 3; pad "
        r"its rows with keras.utils.pad_sequences\(ids, padding=\"post\"\)\.$",
    ),
    ({**INPUTS, "source": SOURCE.astype("float32")}, FLOAT),
    ({**INPUTS, "source": SOURCE.astype(str)}, "source: expected integer ids, got <U11; " + TEXTS),
    (
        {**INPUTS, "source": SOURCE.astype(str).astype(object)},
        "source: expected integer ids, got object; " + TEXTS,
    ),
    (
        {**INPUTS, "source": tf.constant(SOURCE.astype(str))},
        "source: expected integer ids, got string; " + TEXTS,
    ),
    (
        {**INPUTS, "source": tf.RaggedTensor.from_tensor(SOURCE)},
        r"source: expected a dense tensor of ids \(batch, length\), got a ragged one; pad its rows "
        r"with ids.to_tensor\(\)\.$",
    ),
    (
        {"input_ids": SOURCE, "target": TARGET},
        "inputs: expected source, target, source_mask, got 'input_ids'. Its name here is 'source'.",
    ),
    ({**INPUTS, "labels": TARGET}, "inputs: .*, got 'labels'. Pass labels as y.$"),
    ({**INPUTS, "source": SOURCE > 5}, "source: expected integer ids, got bool; "),
    (
        {**INPUTS, "source": np.where(SOURCE == SOURCE.max(), -1, SOURCE)},
        "source: expected ids from 0 to 28, got -1" + VOCABULARY,
    ),
    (
        {**INPUTS, "source": np.full((B, S), 29)},
        "source: expected ids from 0 to 28, got 29" + VOCABULARY,
    ),
    ({**INPUTS, "target": np.full((B, T), 31)}, "target: expected ids from 0 to 30, got 31; "),
    (
        {**INPUTS, "target": TARGET[:2]},
        "inputs: expected as many rows in target as in source, got 2 and 3.",
    ),
    (
        {**INPUTS, "source_mask": SOURCE[:, :4] > 0},
        r"source_mask: expected the shape of source, \(3, 5\), got \(3, 4\).",
    ),
    (
        {**INPUTS, "source_mask": SOURCE[0] > 0},
        r"source_mask: expected the shape of source, \(3, 5\), got \(5,\).",
    ),
]


@pytest.mark.parametrize(("inputs", "message"), REFUSED)
def test_bad_inputs_are_refused(inputs, message, transformer):
    calls = [transformer, transformer.attention_maps, transformer.predict, transformer.evaluate]
    for call in (*calls, lambda x: transformer.fit(x, TARGET, verbose=0)):
        with pytest.raises(ValueError, match="^" + message):
            call(inputs)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((SOURCE, TARGET), OF_TWO + "tuple of 2; "),
        ({**INPUTS, "source": SOURCE[..., None]}, RANK + r"\(3, 5, 1\); "),
        ({**INPUTS, "source": SOURCE.astype("float32")}, FLOAT),
        (
            {**INPUTS, "target": TARGET[:2]},
            "inputs: expected as many rows in target as in source, got 2 and 3.",
        ),
    ],
)
def test_dataset_batches_are_checked(inputs, message, transformer):
    with pytest.raises(ValueError, match="^" + message):
        transformer.predict(tf.data.Dataset.from_tensors((inputs,)), verbose=0)


LABELS = (
    r"labels: expected ids of shape \(None, 7\) for predictions of shape \(None, 7, 31\), "
    r"got shape "
)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            keras.utils.to_categorical(TARGET, TARGETS),
            LABELS + r"\(None, 7, 31\); pass ids, not one-hot vectors.",
        ),
        (TARGET[:, 1:], LABELS + r"\(None, 6\); pass one id for each prediction."),
        (
            TARGET[:, 0],
            LABELS.replace("None, 7, 31", "None, 7, 31")
            + r"\(None(, 1)?,?\); pass one id for each prediction.",
        ),
    ],
    ids=["one-hot", "too short", "of one token"],
)
def test_labels_must_be_ids(labels, message, transformer):
    for call in (transformer.fit, transformer.evaluate):
        with pytest.raises(ValueError, match="^" + message):
            call(INPUTS, labels, verbose=0)


@pytest.mark.parametrize("loss_or_metric", [LabelSmoothedCrossentropy, TokenAccuracy, Perplexity])
def test_one_hot_labels_are_refused(loss_or_metric):
    labels, logits = np.eye(TARGETS, dtype="float32")[TARGET], np.zeros((B, T, TARGETS), "float32")
    with pytest.raises(
        ValueError,
        match=(
            r"^labels: expected ids of shape \(3, 7\) for predictions .*, got shape \(3, 7, "
            r"31\); pass ids"
        ),
    ):
        loss_or_metric()(labels, logits)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            INPUTS,
            (
                r"inputs: expected an array or tensor of ids \(batch, length\), got a dictionary; "
                r"pass the array of ids itself."
            ),
        ),
        (SOURCE[0], r"inputs: expected ids of shape \(batch, length\), got shape \(5,\)"),
        (SOURCE.astype("float32"), "inputs: expected integer ids, got float32; "),
        (SOURCE - 29, "inputs: expected ids from 0 to 28, got -2[0-9]; "),
    ],
)
def test_language_model_checks_inputs(inputs, message, language_model):
    for call in (language_model, language_model.predict):
        with pytest.raises(ValueError, match="^" + message):
            call(inputs)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            [SOURCE, SOURCE],
            r"source: expected an array or tensor of ids \(batch, length\), got a list of 2; ",
        ),
        (SOURCE[0], RANK + r"\(5,\)"),
        ({"source": SOURCE.astype("float32")}, FLOAT),
        (SOURCE - 29, "source: expected ids from 0 to 28, got -2[0-9]; "),
        (
            {"source": SOURCE, "source_mask": SOURCE[:2]},
            r"source_mask: expected the shape of source, \(3, 5\), got \(2, 5\).",
        ),
    ],
)
def test_classifier_checks_inputs(inputs, message, classifier):
    for call in (classifier, classifier.predict, classifier.attention_maps):
        with pytest.raises(ValueError, match="^" + message):
            call(inputs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Transformer("tiny"),
            "expected a TransformerConfig, got 'tiny'; "
            r'make one with TransformerConfig.preset\("tiny", source_vocab_size=..., '
            r"target_vocab_size=...\)\.",
        ),
        (
            lambda: LanguageModel("base"),
            "expected a LanguageModelConfig, got 'base'; "
            r'make one with LanguageModelConfig.preset\("base", vocab_size=...\)\.',
        ),
        (
            lambda: EncoderClassifier(LanguageModelConfig(vocab_size=SOURCES)),
            "expected a ClassifierConfig, got a value of type LanguageModelConfig; "
            r'make one with ClassifierConfig.preset\("tiny", vocab_size=..., num_classes=...\)\.',
        ),
        (lambda: Transformer(SIZES), "expected a TransformerConfig, got a value of type dict; "),
    ],
)
def test_config_type_is_checked(make, message):
    with pytest.raises(ValueError, match="^config: " + message):
        make()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
def test_all_valid_ids_are_accepted(dtype, language_model):
    language_model(np.array([[0, 28]], dtype))
    language_model(np.zeros((0, 3), dtype))


def test_only_eager_values_are_checked():
    with pytest.raises(ValueError, match="^inputs: expected ids from 0 to 28, got -3; "):
        check_ids("inputs", tf.constant([[-3, 4]]), SOURCES)
    traced = tf.function(
        lambda x: check_ids("inputs", x, SOURCES) or x,
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )
    np.testing.assert_array_equal(traced(tf.constant([[-3, 4]])), [[-3, 4]])


def test_unknown_shapes_are_accepted():
    @tf.function(
        input_signature=[tf.TensorSpec(None, tf.int32), tf.TensorSpec([None, None], tf.int32)]
    )
    def check(source, target):
        check_ids("source", source, SOURCES)
        check_same_rows({"source": source, "target": target})
        return source

    assert check(SOURCE, TARGET).shape == (B, S)


@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig(
            source_vocab_size=SOURCES, target_vocab_size=TARGETS, encoder_layers=1, **DECODER
        ),
        LanguageModelConfig(vocab_size=SOURCES, **DECODER),
        ClassifierConfig(vocab_size=SOURCES, num_classes=2, encoder_layers=1, **SIZES),
    ],
    ids=lambda config: config.architecture,
)
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_summary_knows_every_shape(config, dtype):
    kind = {"encoder_decoder": Transformer, "decoder": LanguageModel, "encoder": EncoderClassifier}[
        config.architecture
    ]
    model, built, lines = kind(config, dtype=dtype), make_model(config), []
    model.summary(print_fn=lambda line, line_break=False: lines.append(line), line_length=120)
    text = "\n".join(lines)
    assert f"Total params: {built.count_params():,} " in text
    assert "?" not in text
    assert "(None, None, 8)" in text
    width = {
        "encoder_decoder": "(None, None, 31)",
        "decoder": "(None, None, 29)",
        "encoder": "(None, 2)",
    }[config.architecture]
    assert width in text
