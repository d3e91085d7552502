"""Predictions come in the order of the pairs, one for each."""

import numpy as np
import pytest
import tensorflow as tf
from pairs_in_memory import Memory, sentences

from tfk_transformer.config.model_options import (
    ClassifierConfig,
    LanguageModelConfig,
    TransformerConfig,
)
from tfk_transformer.data.batches import JoinedBatches, Share, TokenBatches
from tfk_transformer.data.labels import LabelledBatches, Labels
from tfk_transformer.datasets import Report
from tfk_transformer.models.registry import make_model

SIZES = {"model_dim": 8, "ff_dim": 7, "num_heads": 2}
SIDES = list(zip(sentences(300, 13, seed=1), sentences(300, 11, seed=2), strict=True))


def make_functions(config):
    """Make a model that XLA does not compile for each shape of a batch, and its function from one
    input to the prediction.
    """
    model = make_model(config)
    model.compile(jit_compile=False)
    return model, tf.function(model, reduce_retracing=True)


def check(predictions, one_by_one):
    """Compare predictions with those for each pair by itself."""
    assert len(predictions) == len(one_by_one) > 256
    for prediction, expected in zip(predictions, one_by_one, strict=True):
        assert prediction.shape == expected.shape
        np.testing.assert_allclose(prediction, expected, atol=2e-5)


# Four shapes of batches, and many.
@pytest.mark.parametrize("few_shapes", [pytest.param(True, marks=pytest.mark.long), False])
def test_transformer_keeps_pair_order(tokenizers, few_shapes):
    model, predict = make_functions(
        TransformerConfig(
            source_vocab_size=59, target_vocab_size=61, encoder_layers=1, decoder_layers=1, **SIZES
        )
    )
    batches, report = (
        TokenBatches(Memory(SIDES), "train", *tokenizers, 149, 41, few_shapes=few_shapes),
        Report(),
    )
    pairs = [(np.array([source]), np.array([target[:-1]])) for source, target in batches.pairs()]
    check(
        list(batches.predict(model, report)),
        [np.asarray(predict({"source": s, "target": t}))[0] for s, t in pairs],
    )
    assert report.dropped == len(SIDES) - len(pairs) > 0


def test_language_model_keeps_order(tokenizers):
    model, predict = make_functions(LanguageModelConfig(vocab_size=59, decoder_layers=1, **SIZES))
    batches = JoinedBatches(Memory(SIDES), "train", tokenizers[0], tokenizers[0], 149, 101)
    rows = [np.array([[1, *source[:-1], *target[1:-1]]]) for source, target in batches.pairs()]
    check(list(batches.predict(model)), [np.asarray(predict(row))[0] for row in rows])


def test_classifier_keeps_text_order(tokenizers):
    model, predict = make_functions(
        ClassifierConfig(vocab_size=59, num_classes=2, encoder_layers=1, **SIZES)
    )
    sides = [(source, "ab"[len(source) % 2]) for source, _ in SIDES]
    batches = LabelledBatches(Memory(sides), "train", tokenizers[0], Labels.of("ab"), 149, 61)
    check(
        list(batches.predict(model)),
        [np.asarray(predict(np.array([source])))[0] for source, _ in batches.pairs()],
    )


def test_predict_refuses_a_share(tokenizers):
    batches = TokenBatches(Memory(SIDES), "train", *tokenizers, 149, 41, share=Share(1, 2, 2))
    with pytest.raises(
        ValueError,
        match="predict: expected batches of a single process, got a share of 2; leave out `share`.",
    ):
        next(batches.predict(None))
