"""The loss joined with the projection to the vocabulary, as `fit` computes it; see
`models.token_model.forward_pass`.
"""

import keras
import numpy as np
import pytest

from tfk_transformer import losses
from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import Perplexity, TokenAccuracy
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.training.towers import fit_in_towers

# The same ids serve as source, target and labels, of which `fit` warns.
pytestmark = pytest.mark.filterwarnings("ignore:(target|labels). expected")

SIZES = {"model_dim": 8, "ff_dim": 8, "num_heads": 2, "decoder_layers": 1, "dropout": 0.0}
VOCAB_SIZE = 20


def batch(seed):
    """Return ids (8, 6), of uneven lengths."""
    random = np.random.default_rng(seed)
    ids = random.integers(3, VOCAB_SIZE, (8, 6))
    ids[np.arange(6) >= random.integers(1, 7, (8, 1))] = 0
    return ids


def make(model_class, dtype="float32", tie_embeddings="all", seed=3, **options):
    keras.utils.set_random_seed(seed)
    options |= {"tie_embeddings": tie_embeddings}
    if model_class is LanguageModel:
        config = LanguageModelConfig(vocab_size=VOCAB_SIZE, **SIZES, **options)
    else:
        sizes = {
            "source_vocab_size": VOCAB_SIZE,
            "target_vocab_size": VOCAB_SIZE,
            "encoder_layers": 1,
        }
        config = TransformerConfig(**sizes, **SIZES, **options)
    model = model_class(config, dtype=dtype)
    model.build()
    return model


@pytest.fixture
def joined(monkeypatch):
    """The label smoothings of joined losses, one each time a step is traced."""
    actual = []

    def watched(labels, logits, x, table, label_smoothing):
        actual.append(label_smoothing)
        return original(labels, logits, x, table, label_smoothing)

    original = losses.projected_crossentropy
    monkeypatch.setattr(losses, "projected_crossentropy", watched)
    return actual


class Apart(LabelSmoothedCrossentropy):
    """The same loss of another class, which is not joined with the projection."""


def fitted(
    model,
    towers=1,
    from_logits=True,
    weights=None,
    consistency=0.0,
    loss_class=LabelSmoothedCrossentropy,
    **compiling,
):
    loss = loss_class(0.1, from_logits, consistency)
    optimizer = keras.optimizers.SGD(1.0, global_clipnorm=0.5)
    model.compile(
        optimizer,
        loss,
        metrics=[TokenAccuracy(), Perplexity(from_logits)],
        **{"jit_compile": False, **compiling},
    )
    fit_in_towers(model, towers)
    batches = [batch(seed) for seed in range(2)]
    inputs = [
        ids if isinstance(model, LanguageModel) else {"source": ids, "target": ids}
        for ids in batches
    ]
    logs = [
        model.fit(x, y, sample_weight=weights, batch_size=8, verbose=0).history
        for x, y in zip(inputs, batches, strict=True)
    ]
    return model.get_weights(), {name: [log[name][0] for log in logs] for name in logs[0]}


def assert_same(one, other, tolerance=1e-5):
    np.testing.assert_allclose(list(one[1].values()), list(other[1].values()), rtol=tolerance)
    for weight, same in zip(one[0], other[0], strict=True):
        np.testing.assert_allclose(weight, same, atol=tolerance)


# A trace of a step takes seconds, and an eager step does not.
EAGER = {"run_eagerly": True}


@pytest.fixture(scope="module")
def learned_apart():
    """What a Transformer learns by the loss that is not joined."""
    return fitted(make(Transformer), loss_class=Apart, **EAGER)


@pytest.mark.parametrize(
    "compiling",
    [
        {},
        pytest.param({"jit_compile": True}, marks=pytest.mark.long),  # XLA compiles a step
        EAGER,
    ],
    ids=["graph", "XLA", "eager"],
)
def test_joined_loss_learns_alike(learned_apart, compiling, joined):
    assert_same(fitted(make(Transformer), **compiling), learned_apart)
    assert set(joined) == {0.1}


@pytest.mark.parametrize(
    ("model_class", "options"), [(LanguageModel, {}), (Transformer, {"tie_embeddings": "none"})]
)
def test_other_models_join_their_loss(model_class, options, joined):
    expected = fitted(make(model_class, **options), loss_class=Apart, **EAGER)
    assert joined == []
    assert_same(fitted(make(model_class, **options), **EAGER), expected)
    assert set(joined) == {0.1}


@pytest.mark.long  # traces a step; training/test_backends.py compares one in the short tests
def test_each_tower_joins_its_loss(learned_apart, joined):
    assert_same(fitted(make(Transformer), towers=2), learned_apart)
    assert joined == [0.1, 0.1]


CLASS_WEIGHT = {3: 2.0, 5: 0.0, 19: 0.5}


@pytest.mark.parametrize("towers", [1, pytest.param(2, marks=pytest.mark.long)])  # traces a step
def test_class_weights_end_with_fit(towers, joined):
    """Weights by token id count in `fit`, and not after it."""
    ids = batch(1)
    weights = np.ones(VOCAB_SIZE, "float32")
    weights[list(CLASS_WEIGHT)] = list(CLASS_WEIGHT.values())
    losses = []
    for fitting in ({"sample_weight": weights[ids]}, {"class_weight": CLASS_WEIGHT}, {}):
        model = make(Transformer)
        # Only `class_weight` is compared in a compiled step.
        eager = {"run_eagerly": towers == 1 and "class_weight" not in fitting}
        model.compile("sgd", LabelSmoothedCrossentropy(0.1), jit_compile=False, **eager)
        fit_in_towers(model, towers)
        inputs = {"source": ids, "target": ids}
        logs = model.fit(inputs, ids, batch_size=8, verbose=0, **fitting).history
        after = model.train_on_batch(inputs, ids)
        losses.append([logs["loss"][0], float(after)])
    by_tokens, by_classes, without = losses
    np.testing.assert_allclose(by_tokens, by_classes, rtol=1e-6)
    assert abs(by_classes[0] / without[0] - 1) > 0.01


def test_class_weights_of_a_batch():
    ids = batch(1)
    inputs = {"source": ids, "target": ids}
    losses = []
    for row, token in (({}, {}), ({"sample_weight": np.arange(8.0)}, {"class_weight": {3: 0.0}})):
        model = make(Transformer)
        model.compile("sgd", LabelSmoothedCrossentropy(0.1), run_eagerly=True)
        expected = np.array(model.loss.call(ids, model(inputs)))
        losses.append(float(model.train_on_batch(inputs, ids, **row, **token)))
    weights = (ids != 0) * (ids != 3) * np.arange(8.0)[:, None]
    assert losses[0] == pytest.approx((expected * (ids != 0)).sum() / (ids != 0).sum(), rel=1e-5)
    assert losses[1] == pytest.approx((expected * weights).sum() / (ids != 0).sum(), rel=1e-5)


def test_class_weights_of_batches_keep_the_compiled_step():
    model = make(Transformer)
    model.compile("sgd", LabelSmoothedCrossentropy(0.1), jit_compile=False)
    ids = batch(1)
    compiled = []
    for weight in (0.5, 2.0):
        model.train_on_batch({"source": ids, "target": ids}, ids, class_weight={3: weight})
        compiled.append(model.train_function)
    assert compiled[0] is not None
    assert compiled[0] is compiled[1]


@pytest.mark.parametrize("token", [-1, VOCAB_SIZE, "de", 1.5])
def test_class_weight_of_no_token_is_refused(token):
    model = make(Transformer)
    model.compile("sgd", LabelSmoothedCrossentropy(0.1))
    ids = batch(1)
    message = "^class_weight: expected weights by token id, from 0 to 19, got the key "
    with pytest.raises(ValueError, match=message):
        model.fit({"source": ids, "target": ids}, ids, class_weight={3: 1.0, token: 2.0})
    with pytest.raises(ValueError, match=message):
        model.train_on_batch({"source": ids, "target": ids}, ids, class_weight={token: 2.0})


def test_bfloat16_loss_is_close(joined):
    # The accuracy too is compared. With seed 3 the two best logits of two tokens are 0.0015 and
    # 0.0036 apart, and bfloat16 moves them by 0.01 to 0.02, so that they may change places. With
    # seed 4 none are nearer than 0.019, and none change places.
    exact = fitted(make(Transformer, seed=4), **EAGER)
    half = fitted(make(Transformer, dtype="mixed_bfloat16", seed=4), **EAGER)
    assert set(joined) == {0.1}
    assert_same(half, exact, 0.02)


@pytest.mark.parametrize(
    ("options", "fitting"),
    [
        ({"output_bias": True}, {}),
        ({"output": "probabilities"}, {"from_logits": False}),
        ({}, {"loss_weights": [0.5]}),
        ({}, {"consistency": 1.0}),
    ],
    ids=["a bias", "probabilities", "weight of the loss", "consistency"],
)
def test_unsupported_cases_stay_apart(options, fitting, joined):
    _, figures = fitted(make(Transformer, **options), **fitting, **EAGER)
    assert joined == []
    assert np.isfinite(figures["loss"]).all()


def test_loss_weights_are_detected():
    for loss_weights in (None, [0.5]):
        model = make(Transformer)
        model.compile("sgd", "mse", loss_weights=loss_weights)
        assert model.has_loss_weights == (loss_weights is not None)


def test_layer_losses_are_added(learned_apart, joined):
    plain = learned_apart[1]["loss"][0]
    model = make(Transformer)
    model.target_embedding.embeddings.regularizer = keras.regularizers.L2(0.5)
    penalty = 0.5 * float((model.target_embedding.embeddings.numpy() ** 2).sum())
    assert fitted(model, **EAGER)[1]["loss"][0] == pytest.approx(plain + penalty, rel=1e-5)
    assert joined == []


def test_loss_uses_other_predictions(joined):
    model, ids = make(Transformer), batch(0)
    model.compile("sgd", LabelSmoothedCrossentropy(0.1))
    logits = model({"source": ids, "target": ids}, training=True)
    loss = float(model.compute_loss(y=ids, y_pred=2 * logits))
    assert joined == []
    assert loss == pytest.approx(float(LabelSmoothedCrossentropy(0.1)(ids, 2 * logits)))
    assert loss != pytest.approx(float(LabelSmoothedCrossentropy(0.1)(ids, logits)))


class DoubledLoss(Transformer):
    def compute_loss(self, *args, **kwargs):
        return 2 * super().compute_loss(*args, **kwargs)


class DoubledLogits(Transformer):
    def call(self, inputs, training=None):
        return 2 * super().call(inputs, training)


@pytest.mark.parametrize("model_class", [DoubledLoss, DoubledLogits])
def test_methods_of_a_subclass_are_called(model_class, joined):
    ids = batch(0)
    logits = make(Transformer)({"source": ids, "target": ids})
    loss = LabelSmoothedCrossentropy(0.1)
    expected = loss(ids, 2 * logits) if model_class is DoubledLogits else 2 * loss(ids, logits)
    loss = fitted(make(model_class), **EAGER)[1]["loss"][0]
    assert loss == pytest.approx(float(expected), rel=1e-5)
    assert joined == []
