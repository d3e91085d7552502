"""What `compile` and `fit` refuse, warn of, and do by themselves."""

import functools
import itertools
import shutil
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfk_transformer.config.model_options import ClassifierConfig, LanguageModelConfig
from tfk_transformer.config.model_options import TransformerConfig as Config
from tfk_transformer.data.batches import JoinedBatches, TokenBatches
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import Perplexity, TokenAccuracy
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.ensemble import Ensemble
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.registry import make_model
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

SIZES = {"model_dim": 8, "num_heads": 2, "ff_dim": 11, "dropout": 0.0, "max_length": 13}
LAYERS = {"encoder_layers": 1, "decoder_layers": 1}
CONFIG = Config(source_vocab_size=29, target_vocab_size=31, **LAYERS, **SIZES)
PROBABILITIES = CONFIG.replace(output="probabilities")
CLASSES = ClassifierConfig(vocab_size=29, num_classes=3, encoder_layers=1, **SIZES)
LANGUAGE_MODEL = LanguageModelConfig(vocab_size=31, decoder_layers=1, **SIZES)
INPUTS = {
    "source": np.array([[4, 5, 2], [6, 2, 0], [0, 0, 0]], "int32"),
    "target": np.array([[1, 6, 7, 8], [1, 9, 0, 0], [0, 0, 0, 0]], "int32"),
}
LABELS = np.array([[6, 7, 8, 2], [9, 2, 0, 0], [0, 0, 0, 0]], "int32")
SPARSE = keras.losses.SparseCategoricalCrossentropy
SPARSE_METRIC = keras.metrics.SparseCategoricalCrossentropy


# `compile` compares from_logits.


@pytest.mark.parametrize(
    ("config", "arguments", "message"),
    [
        (CONFIG, {"loss": LabelSmoothedCrossentropy(0.1, from_logits=False)}, "loss: expected "),
        (
            CONFIG,
            {"loss": "sparse_categorical_crossentropy"},
            "loss: expected from_logits=True for a model that returns logits, got "
            "from_logits=False of sparse_categorical_crossentropy; pass "
            r"keras.losses.SparseCategoricalCrossentropy\(from_logits=True\)\.$",
        ),
        (CONFIG, {"loss": keras.losses.sparse_categorical_crossentropy}, "loss: expected "),
        (CONFIG, {"loss": SPARSE()}, "loss: .* of SparseCategoricalCrossentropy; pass keras.losse"),
        (CONFIG, {"loss": [SPARSE()]}, "loss: "),
        (CONFIG, {"loss": {"output": SPARSE()}}, "loss: "),
        (CONFIG, {"loss": "CategoricalCrossentropy"}, "loss: "),
        (CONFIG, {"metrics": [Perplexity(from_logits=False)]}, "metrics: expected from_logits=Tru"),
        (CONFIG, {"metrics": [TokenAccuracy(), SPARSE_METRIC()]}, "metrics: .*; pass keras.metric"),
        (CONFIG, {"metrics": {"output": ["crossentropy"]}}, "metrics: .*SparseCategoricalCrossent"),
        (CONFIG, {"weighted_metrics": ["sparse_categorical_crossentropy"]}, "weighted_metrics: "),
        (
            PROBABILITIES,
            {"loss": LabelSmoothedCrossentropy()},
            "loss: expected from_logits=False for a model that returns probabilities, got "
            r".*; pass LabelSmoothedCrossentropy\(from_logits=False\)\.$",
        ),
        (PROBABILITIES, {"metrics": [Perplexity()]}, "metrics: expected from_logits=False "),
        (LANGUAGE_MODEL, {"loss": SPARSE()}, "loss: "),
        (CLASSES, {"loss": "sparse_categorical_crossentropy"}, "loss: "),
    ],
)
def test_other_output_is_refused(config, arguments, message):
    model = make_model(config)
    with pytest.raises(ValueError, match="^" + message):
        model.compile("sgd", **arguments)
    assert not model.compiled


def test_ensemble_returns_log_probabilities():
    ensemble = Ensemble([Transformer(CONFIG)])
    ensemble.compile("sgd", LabelSmoothedCrossentropy())
    with pytest.raises(ValueError, match="^loss: expected from_logits=True "):
        ensemble.compile("sgd", SPARSE())


def partly(labels, predicted, from_logits=True):
    return keras.ops.mean(predicted)


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        (CONFIG, {"loss": SPARSE(from_logits=True), "metrics": ["accuracy", Perplexity()]}),
        (CONFIG, {"loss": "mse", "metrics": [["acc"], None]}),
        (CONFIG, {"loss": functools.partial(partly)}),
        (PROBABILITIES, {"loss": "sparse_categorical_crossentropy", "metrics": [SPARSE_METRIC()]}),
        (CONFIG, {}),
    ],
)
def test_fitting_losses_are_accepted(config, arguments):
    make_model(config).compile("sgd", **arguments)


class Softmax(Transformer):
    def call(self, inputs, training=None):
        return keras.ops.softmax(super().call(inputs, training))


def test_output_of_own_call_is_unknown():
    Softmax(CONFIG).compile("sgd", LabelSmoothedCrossentropy(from_logits=False))


class Compiled(Transformer):
    def compile(self, rate=0.1):
        super().compile(keras.optimizers.SGD(rate), LabelSmoothedCrossentropy(0.0))


def test_loaded_model_is_compiled(tmp_path):
    model = make_model(CONFIG)
    loss = SPARSE(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], run_eagerly=True)
    model.fit(INPUTS, LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 1
    expected = model.evaluate(INPUTS, LABELS, verbose=0)
    np.testing.assert_allclose(loaded.evaluate(INPUTS, LABELS, verbose=0), expected, rtol=1e-5)


def test_own_compile_is_not_called_by_loading():
    model = Compiled(CONFIG)
    model.build()
    model.compile()
    with pytest.warns(UserWarning, match="method is custom"):
        model.compile_from_config(model.get_compile_config())


# `fit` warns of targets.


class Sequence(keras.utils.PyDataset):
    def __init__(self, *batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def dataset(*batches):
    data = [tf.data.Dataset.from_tensors(batch) for batch in batches]
    return functools.reduce(tf.data.Dataset.concatenate, data)


GOOD = (INPUTS, LABELS)
DATA = {
    "arrays": lambda first: first,
    "dataset": lambda first: (dataset(first, GOOD),),
    "sequence": lambda first: (Sequence(first, GOOD),),
    "generator": lambda first: (batch for batch in [(first, GOOD)][0]),
}
NO_START = ({**INPUTS, "target": INPUTS["target"] * 2}, LABELS)
NOT_SHIFTED = (INPUTS, INPUTS["target"])


@pytest.fixture(scope="module")
def model():
    model = make_model(CONFIG)
    model.compile("sgd", LabelSmoothedCrossentropy(0.1))
    return model


def fitted(model, data, **arguments):
    """Train on arrays or other data, and return the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x, y = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
        x = x[0] if isinstance(x, tuple) else x
        model.fit(x, y, verbose=0, **arguments)
    # Keras warns of the end of a generator.
    messages = [str(warning.message) for warning in caught]
    return [message for message in messages if not message.startswith("Your input ran out")]


@pytest.mark.parametrize("kind", DATA)
def test_targets_without_start_token(kind, model):
    expected = (
        "target: expected rows that begin with the start token, 1, got 2; put 1 before the tokens "
        "of each target, and leave it out of the labels."
    )
    epochs = 1 if kind == "generator" else 2  # once in all epochs
    assert fitted(model, DATA[kind](NO_START), epochs=epochs) == [expected]


@pytest.mark.parametrize("kind", DATA)
def test_targets_equal_to_labels(kind, model):
    expected = (
        "labels: expected the tokens that follow those of target, got the same ids; pass "
        "ids[:, :-1] as target and ids[:, 1:] as labels."
    )
    assert fitted(model, DATA[kind](NOT_SHIFTED)) == [expected]


@pytest.mark.parametrize("kind", DATA)
def test_right_targets_cause_no_warning(kind, model):
    assert fitted(model, DATA[kind](GOOD)) == []


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_one_generator_keeps_its_batches(model):
    """The check reads no batch that `fit` does not train on."""
    batches = itertools.repeat(NO_START, 3)
    data = tf.data.Dataset.from_generator(
        lambda: batches,
        output_signature=(
            {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS},
            tf.TensorSpec([None, None], tf.int32),
        ),
    )
    steps = []
    counting = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: steps.append(1))
    with pytest.warns(UserWarning, match="^target: expected rows that begin"):
        model.fit(data, verbose=0, callbacks=[counting])
    assert len(steps) == 3


def test_language_model_may_begin_anywhere():
    model = make_model(LANGUAGE_MODEL)
    model.compile("sgd", LabelSmoothedCrossentropy(0.1))
    rows = np.array([[5, 6, 7], [8, 9, 0]], "int32")
    assert fitted(model, (rows[:, :-1], rows[:, 1:])) == []
    with pytest.warns(UserWarning, match=r"follow those of inputs, .* ids\[:, :-1\] as inputs and"):
        model.fit(rows, rows, verbose=0)


# `fit` reads batches.


@pytest.fixture(scope="module")
def pairs():
    words = ["eins", "zwei", "drei", "vier", "five", "sechs", "seven", "acht"]
    return [(first, second) for first in words for second in words]


@pytest.fixture(scope="module")
def tokenizer(pairs):
    return SubwordTokenizer.train((text for pair in pairs for text in pair), vocab_size=31)


def batches_of(pairs, tokenizer, batches_class=TokenBatches, **options):
    options = {"batch_tokens": 60, "max_length": 13, "shuffle": True, **options}
    return batches_class(pairs, "train", tokenizer, tokenizer, **options)


class Order(keras.callbacks.Callback):
    """Note the epochs of the batches that are read."""

    def __init__(self, batches, stop_in=None):
        super().__init__()
        self.stop_in = stop_in
        self.epochs = []
        read = batches.batches

        def note(epoch, first=0):
            self.epochs.append(epoch)
            return read(epoch, first)

        batches.batches = note

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self.stop_in:
            raise KeyboardInterrupt


def transformer(tokenizer, seed=0, built=True):
    keras.utils.set_random_seed(seed)
    size = tokenizer.vocab_size
    model = Transformer(CONFIG.replace(source_vocab_size=size, target_vocab_size=size))
    model.compile("sgd", LabelSmoothedCrossentropy(0.1))
    if built:  # otherwise the step is traced twice
        model.build()
        model.optimizer.build(model.trainable_variables)
    return model


@pytest.mark.parametrize(
    ("eager", "every"),
    [(True, 5), pytest.param(False, 1, marks=pytest.mark.long)],  # traces two steps
)
def test_batches_equal_their_dataset(pairs, tokenizer, eager, every):
    """Nothing is compiled by XLA without a GPU, and Keras warns of nothing."""
    one, other = transformer(tokenizer), transformer(tokenizer)
    one.run_eagerly = other.run_eagerly = eager
    some = pairs[::every]
    others = batches_of(some, tokenizer, shuffle=False)
    options = {"epochs": 2, "verbose": 0}
    losses = one.fit(batches_of(some, tokenizer), validation_data=others, **options).history
    expected = other.fit(
        batches_of(some, tokenizer).dataset(),
        validation_data=others.dataset(),
        shuffle=False,
        **options,
    ).history
    assert losses == expected
    assert one.evaluate(others, verbose=0) == pytest.approx(losses["val_loss"][-1], rel=1e-6)
    assert one.jit_compile == bool(tf.config.list_physical_devices("GPU"))


def test_joined_batches_are_read(pairs, tokenizer):
    model = LanguageModel(LANGUAGE_MODEL.replace(vocab_size=tokenizer.vocab_size))
    model.compile("adam", LabelSmoothedCrossentropy(0.0))
    model.build()
    model.optimizer.build(model.trainable_variables)  # otherwise the step is traced twice
    batches = batches_of(pairs, tokenizer, JoinedBatches, max_length=26, batch_tokens=90)
    losses = model.fit(batches, epochs=2, verbose=0).history["loss"]
    assert losses[1] < losses[0]


def test_fit_continues_with_next_epochs(pairs, tokenizer):
    model, batches = transformer(tokenizer), batches_of(pairs, tokenizer)
    order = Order(batches)
    for arguments in ({"epochs": 2}, {"epochs": 2}, {"epochs": 6, "initial_epoch": 5}):
        model.fit(batches, verbose=0, **arguments)
    assert order.epochs == [0, 1, 2, 3, 5]


# Three trainings; test_fit_continues_with_next_epochs has the order without a restart.
@pytest.mark.long
def test_backup_restores_order_of_batches(pairs, tokenizer, tmp_path):
    batches = batches_of(pairs, tokenizer)
    whole = transformer(tokenizer).fit(batches, epochs=4, verbose=0).history["loss"]
    batches = batches_of(pairs, tokenizer)
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    with pytest.raises(KeyboardInterrupt):
        # After the backup of epoch 1, as callbacks run in this order.
        transformer(tokenizer).fit(
            batches, epochs=4, verbose=0, callbacks=[backup, Order(batches, stop_in=1)]
        )
    shutil.copytree(tmp_path / "backup", tmp_path / "copy")
    # A model that is not built, with other weights, which are restored.
    model = transformer(tokenizer, seed=1, built=False)
    # The same object goes on, or one of a new process.
    for restarted in (False, True):
        batches = batches_of(pairs, tokenizer) if restarted else batches
        order = Order(batches)
        backup = keras.callbacks.BackupAndRestore(tmp_path / ("copy" if restarted else "backup"))
        rest = model.fit(batches, epochs=4, verbose=0, callbacks=[backup]).history["loss"]
        assert order.epochs == [2, 3]
        np.testing.assert_allclose(rest, whole[2:], rtol=1e-5)


def test_prediction_of_batches_is_named(pairs, tokenizer):
    model, batches = transformer(tokenizer), batches_of(pairs, tokenizer)
    message = r"^x: expected arrays or a data set, got a TokenBatches; batches.predict\(model\) "
    with pytest.raises(ValueError, match=message):
        model.predict(batches)


def test_weights_of_unbuilt_models(tmp_path):
    path = tmp_path / "model.weights.h5"
    first, second = Transformer(CONFIG), Transformer(CONFIG)
    first.save_weights(path)
    second.load_weights(path)
    np.testing.assert_array_equal(second(INPUTS), first(INPUTS))


# What is named in one line.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Transformer(num_layers=6),
            "config: expected a TransformerConfig, got only num_layers; make one with "
            r'TransformerConfig.preset\("tiny", source_vocab_size=..., target_vocab_size=...\)\.$',
        ),
        (
            lambda: EncoderClassifier(),
            "config: expected a ClassifierConfig, got none; make one with ",
        ),
    ],
)
def test_missing_configuration(make, message):
    with pytest.raises(ValueError, match="^" + message):
        make()


class Fixed(Transformer):
    def __init__(self, extra=1):
        super().__init__(CONFIG)


def test_subclass_may_have_other_arguments():
    assert Fixed().config == Fixed(extra=2).config == CONFIG


def test_lora_names_its_layers():
    model = make_model(CONFIG)
    layer = model.encoder.layers[0]
    for part in (model, layer.attention):
        with pytest.raises(AttributeError, match="enable_lora of .*feed_forward.inner and feed"):
            part.enable_lora(4)
        assert not hasattr(part, "enable_lora")
    before = np.array(model(INPUTS))
    layer.feed_forward.inner.enable_lora(4)
    np.testing.assert_array_equal(model(INPUTS), before)
    assert len(layer.feed_forward.inner.trainable_weights) == 3  # two factors and the bias
