"""Greedy search in ONNX files: its own loop gives the results of the loop for all settings."""

import numpy as np
import pytest
from random_translators import OPTIONS, SIZES, V, found_by, of_transformer, opened, source_ids
from tiers import with_long

from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.export.to_onnx.calibration import observe_rows
from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import WeightRounding
from tfk_transformer.export.to_onnx.onnx_models import generate_graph
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

GREEDY = {"beam_size": 1}
# No translation is long enough to repeat so many tokens, but the setting needs the other loop.
WITH_ALL_SETTINGS = {**GREEDY, "no_repeat_ngram_size": SIZES["max_length"]}


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)


def assert_loops_agree(session, atol=0.0, **settings):
    ids, scores = found_by(session, {**GREEDY, **settings})
    expected_ids, expected_scores = found_by(session, {**WITH_ALL_SETTINGS, **settings})
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=0, atol=atol)


# A model each.
@pytest.mark.parametrize("options", with_long(OPTIONS, {*OPTIONS} - {"plain", "m2m", "t5", "ssru"}))
def test_float32_loops_agree(options, tokenizer, tmp_path):
    translator = of_transformer(tokenizer, **options)
    session = opened(generate_graph(translator), tmp_path / "generate.onnx")
    assert_loops_agree(session)
    assert_loops_agree(session, max_length=5, length_penalty=0.6)


@pytest.mark.parametrize("options", with_long(OPTIONS, {*OPTIONS} - {"plain", "ssru"}))
def test_int8_loops_agree(options, tokenizer, tmp_path):
    translator = of_transformer(tokenizer, **options)
    ids = np.maximum(source_ids(), 2)
    rounding = WeightRounding(observe_rows(translator.model, ids, ids))
    graph = generate_graph(translator, rounding=rounding)
    assert_loops_agree(opened(graph, tmp_path / "generate.int8.onnx"))


def test_loops_with_a_shortlist_agree(tokenizer, tmp_path):
    likely = np.random.default_rng(8).integers(3, V, (V, 2)).astype("int32")
    shortlist = Shortlist(np.array([0, 1, 2, 4, 9], "int32"), likely, V, sentences=1)
    model = of_transformer(tokenizer).model
    translator = Translator(model, tokenizer, shortlist=shortlist)
    session = opened(generate_graph(translator), tmp_path / "generate.onnx")
    # The other loop expands the logits to the whole vocabulary.
    assert_loops_agree(session, atol=1e-5)


@pytest.mark.long  # tf2onnx converts the layers
@pytest.mark.parametrize("options", [OPTIONS["plain"], OPTIONS["m2m"], OPTIONS["ssru"]])
def test_loops_of_traced_layers_agree(options, tokenizer, tmp_path):
    translator = of_transformer(tokenizer, **options)
    assert_loops_agree(opened(generate_graph(translator, traced=True), tmp_path / "traced.onnx"))


def is_constant(value):
    """Whether onnxruntime makes a constant of a value when it loads a file."""
    node = value.producer()
    return value.is_initializer() if node is None else all(map(is_constant, node.inputs))


def test_matrices_are_prepacked(tokenizer):
    """onnxruntime prepacks a matrix only if it is a constant of the loop that multiplies by it."""
    graph = generate_graph(of_transformer(tokenizer)).graph
    products = [
        node
        for node in graph.all_nodes()
        if node.graph is not graph and node.op_type in ("MatMul", "Gemm")
    ]
    # In each loop: of two decoder layers six products with weights, and the output.
    constants = [node for node in products if is_constant(node.inputs[1])]
    assert len(constants) == 2 * (2 * 6 + 1)
    for node in constants:
        matrix = node.inputs[1]
        assert (matrix.producer() or matrix).graph is node.graph
