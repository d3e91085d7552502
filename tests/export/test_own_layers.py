"""Models with layers that are not this package's, from steps to files."""

import re
import sys

import keras
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from keras import ops
from random_translators import SIZES, V, of_transformer, translator_of

from tfk_transformer import (
    ClassifierConfig,
    EncoderClassifier,
    LanguageModel,
    SubwordTokenizer,
    TextClassifier,
    Transformer,
    load,
)
from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.export.expected_results import run_search
from tfk_transformer.export.exporting import export
from tfk_transformer.export.formats import TRANSLATOR_FORMATS
from tfk_transformer.export.to_onnx.onnx_models import (
    generate_graph,
    probabilities_graph,
    score_graph,
)
from tfk_transformer.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
)
from tfk_transformer.models.reproduction import difference_from
from tfk_transformer.runtime_environment import install_line

pytestmark = pytest.mark.usefixtures("few_probes")
GREEDY = {"beam_size": 1, "no_repeat_ngram_size": 2}
BEAM = {**GREEDY, "beam_size": 4, "n_best": 2}
TRANSFORMER = {**SIZES, "source_vocab_size": V, "target_vocab_size": V, "key_dim": 4}
LANGUAGE_MODEL = {
    **{name: size for name, size in TRANSFORMER.items() if not name.startswith(("enc", "sou"))},
    "vocab_size": V,
}
del LANGUAGE_MODEL["target_vocab_size"]


def rotate(x, positions):
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-np.arange(half, dtype="float32") / half)
    angles = ops.expand_dims(ops.cast(positions, "float32"), -1) * frequencies
    cos, sin = ops.cos(angles), ops.sin(angles)
    one, two = x[..., :half], x[..., half:]
    return ops.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1)


class RotaryAttention(MultiHeadAttention):
    def project_self(self, x, positions=None):
        query, context = super().project_self(x)
        positions = ops.arange(ops.shape(x)[1]) if positions is None else positions
        return rotate(query, positions), context._replace(key=rotate(context.key, positions))


class RotaryEncoderLayer(EncoderLayer):
    attention_type = RotaryAttention


class RotaryDecoderLayer(DecoderLayer):
    attention_type = RotaryAttention

    def mix_next(self, x, past, lineage):
        position = ops.shape(past.key)[2] // ops.shape(x)[1]
        query, new = self.self_attention.project_self(x, position)
        cache = past.append(new)
        return self.self_attention.attend(query, cache, lineage).output, cache


class RotaryEncoder(Encoder):
    layer_type = RotaryEncoderLayer


class RotaryDecoder(Decoder):
    layer_type = RotaryDecoderLayer


@keras.saving.register_keras_serializable("test_own_layers")
class RotaryTransformer(Transformer):
    encoder_type = RotaryEncoder
    decoder_type = RotaryDecoder

    def build(self, input_shape=None):
        super().build(input_shape)
        self.source_positions.table = self.target_positions.table = None


@keras.saving.register_keras_serializable("test_own_layers")
class RotaryLanguageModel(LanguageModel):
    decoder_type = RotaryDecoder


@keras.saving.register_keras_serializable("test_own_layers")
class RotaryClassifier(EncoderClassifier):
    encoder_type = RotaryEncoder


class ConvolutionAndFeedForward(FeedForward):
    """A layer with weights that the library's own does not have."""

    def build(self, input_shape):
        super().build(input_shape)
        self.convolution = keras.layers.Conv1D(input_shape[-1], 3, padding="same")
        self.convolution.build(input_shape)

    def call(self, x, training=None):
        return super().call(x, training=training) + self.convolution(x)


class ConvolutionLayer(EncoderLayer):
    feed_forward_type = ConvolutionAndFeedForward


class ConvolutionEncoder(Encoder):
    layer_type = ConvolutionLayer


class ConvolutionTransformer(Transformer):
    encoder_type = ConvolutionEncoder


class OtherTrainStep(Transformer):
    def train_step(self, *arguments):
        return super().train_step(*arguments)


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)


@pytest.fixture(scope="module")
def rotary(tokenizer):
    return translator_of(tokenizer, RotaryTransformer, **TRANSFORMER)


def sources(rows=100):
    """Random ids of different lengths, with end tokens and padding."""
    random = np.random.default_rng(2)
    ids = random.integers(3, V, (rows, 11)).astype("int32")
    lengths = random.integers(2, 12, rows)
    ids[np.arange(11) >= lengths[:, None]] = 0
    ids[np.arange(rows), lengths - 1] = 2
    return ids


def plain_session(graph, path):
    """A session without the operators and settings of this package."""
    ir.save(graph, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def assert_searches_are_equal(translator, session):
    ids = sources()
    for settings in (GREEDY, BEAM):
        expected_ids, expected_scores = run_search(translator.runtime, ids, settings)
        values = {name: np.array(value, SETTING_DTYPES[name]) for name, value in settings.items()}
        onnx_ids, scores = session.run(["ids", "scores"], {"source_ids": ids, **values})
        np.testing.assert_array_equal(onnx_ids, expected_ids)
        np.testing.assert_allclose(scores, expected_scores, atol=1e-4)
        assert len({tuple(row) for row in onnx_ids[:, 0]}) > 25


@pytest.mark.parametrize(
    "model_class, options",
    ((RotaryTransformer, TRANSFORMER), (RotaryLanguageModel, LANGUAGE_MODEL)),
    ids=("transformer", "language model"),
)
def test_decoding_step_by_step_equals_a_full_pass(model_class, options, tokenizer):
    model = translator_of(tokenizer, model_class, **options).model
    rows, beams, length = 3, 2, 7
    random = np.random.default_rng(4)
    source = random.integers(3, V, (rows, 5))
    target = random.integers(3, V, (rows, beams, length))
    targets = target.reshape(-1, length)
    pair = {"source": np.repeat(source, beams, axis=0), "target": targets}
    full = model(pair if model_class is RotaryTransformer else targets, training=False)
    memory = model.remember(source) if model_class is RotaryTransformer else ()
    cache = model.decoder.empty_cache(rows)
    other_beams = np.where(np.eye(beams), 0, -1e9).astype("float32")
    for position in range(length):
        lineage = np.tile(other_beams, position + 1)
        step = model.step(target[:, :, position], position, cache, memory, lineage)
        cache = step.cache
        logits = np.reshape(step.logits, (rows * beams, V))
        np.testing.assert_allclose(logits, full[:, position], atol=2e-5)
    assert difference_from(model) is not None


def test_the_onnx_search_equals_the_model(rotary, tmp_path):
    graph = generate_graph(rotary, traced=True)
    assert {node.domain for node in graph.graph.all_nodes()} == {""}
    assert_searches_are_equal(rotary, plain_session(graph, tmp_path / "generate.onnx"))


@pytest.mark.long  # converts a search
def test_a_language_model_continues_as_in_keras(tokenizer, tmp_path):
    translator = translator_of(tokenizer, RotaryLanguageModel, **LANGUAGE_MODEL)
    graph = generate_graph(translator, traced=True)
    assert_searches_are_equal(translator, plain_session(graph, tmp_path / "generate.onnx"))


def test_layers_with_more_weights_are_own_layers(tokenizer):
    translator = translator_of(tokenizer, ConvolutionTransformer, **TRANSFORMER)
    assert "its weights differ: an unexpected 'enc" in difference_from(translator.model)


@pytest.mark.long  # converts a search
def test_layers_with_more_weights(tokenizer, tmp_path):
    translator = translator_of(tokenizer, ConvolutionTransformer, **TRANSFORMER)
    graph = generate_graph(translator, traced=True)
    assert_searches_are_equal(translator, plain_session(graph, tmp_path / "generate.onnx"))


@pytest.mark.parametrize(
    "graph_of",
    [pytest.param(generate_graph, marks=pytest.mark.long), score_graph],  # converts a search
)
def test_a_file_has_each_weight_once(graph_of, tokenizer):
    translator = translator_of(
        tokenizer,
        RotaryTransformer,
        **{**TRANSFORMER, "model_dim": 54, "ff_dim": 101, "tie_embeddings": "all"},
    )
    graph = graph_of(translator, traced=True)
    weights = [value for part in graph.graphs() for value in part.initializers.values()]
    count = sum(value.const_value.size for value in weights)
    assert count < 1.02 * translator.model.count_params()
    tables = [value for value in weights if sorted(value.const_value.shape)[-2:] == [V, 54]]
    assert len(tables) == 1


def test_a_classifier_has_equal_probabilities(tokenizer, tmp_path):
    keras.utils.set_random_seed(5)
    config = ClassifierConfig(
        vocab_size=V, num_classes=5, model_dim=12, num_heads=3, ff_dim=7, encoder_layers=2
    )
    model = RotaryClassifier(config)
    model.build()
    graph = probabilities_graph(TextClassifier(model, tokenizer, list("abcde")), traced=True)
    session = plain_session(graph, tmp_path / "probabilities.onnx")
    (probabilities,) = session.run(None, {"source_ids": sources()})
    expected = ops.softmax(model(sources(), training=False))
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    assert np.ptp(probabilities, axis=0).min() > 0.05


# Exports every default format.
@pytest.mark.long
def test_default_formats_agree_with_the_model(rotary, tmp_path):
    figures = export(rotary, tmp_path / "files")
    assert figures["onnx"]["largest_score_difference"] < 1e-4
    texts = ["ab ba", "cd dc ab", "bba"]
    expected = [translation.text for translation in rotary.translate(texts)]
    for name in ("saved_model", "translate.onnx"):
        translations = load(tmp_path / "files" / name).translate(texts)
        assert [translation.text for translation in translations] == expected


def test_another_training_step_is_no_own_layer(tokenizer):
    assert difference_from(translator_of(tokenizer, OtherTrainStep, **TRANSFORMER).model) is None


@pytest.mark.long  # two exports
def test_another_training_step_changes_no_file(tokenizer, tmp_path):
    files = []
    for model_class in (Transformer, OtherTrainStep):
        translator = translator_of(tokenizer, model_class, **TRANSFORMER)
        folder = tmp_path / model_class.__name__
        export(translator, folder, ["onnx_steps"])
        files.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert files[0] == files[1]
    assert len(files[0]) == 4


@pytest.mark.parametrize("name", ("onnx_int8", "ctranslate2", "huggingface", "web_int8"))
def test_formats_of_own_operators_are_refused(name, rotary, tmp_path, caplog):
    caplog.set_level("INFO")
    with pytest.raises(ValueError, match=f"got {name}, .*own layers; .* is a RotaryAttention, and"):
        export(rotary, tmp_path / "files", ["saved_model", name])
    assert list(tmp_path.iterdir()) == []
    assert caplog.records == []  # the search and the writing of files are logged
    assert name in TRANSLATOR_FORMATS


def test_changed_attributes_count_as_own_layers(tokenizer, tmp_path):
    translator = of_transformer(tokenizer)
    translator.model.decoder.layers[1].feed_forward.inner.activation = keras.activations.tanh
    with pytest.raises(ValueError, match="got onnx_int8, .*the model differs: its outputs differ"):
        export(translator, tmp_path / "files", ["onnx_int8"])


def test_a_missing_converter_is_named(rotary, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=re.escape(install_line("own-layers"))):
        export(rotary, tmp_path / "files", ["onnx"])
    assert list(tmp_path.iterdir()) == []


def test_operators_without_onnx_are_named(tokenizer):
    import tensorflow as tf

    class BesselFeedForward(FeedForward):
        def call(self, x, training=None):
            return tf.math.bessel_i0e(super().call(x, training=training))

    class BesselLayer(EncoderLayer):
        feed_forward_type = BesselFeedForward

    class BesselEncoder(Encoder):
        layer_type = BesselLayer

    class BesselClassifier(EncoderClassifier):
        encoder_type = BesselEncoder

    config = ClassifierConfig(
        vocab_size=V, num_classes=5, model_dim=12, num_heads=3, ff_dim=7, encoder_layers=2
    )
    classifier = TextClassifier(BesselClassifier(config), tokenizer, list("abcde"))
    classifier.model.build()
    with pytest.raises(ValueError, match="no ONNX operators for BesselI0e; use formats="):
        probabilities_graph(classifier, traced=True)
