"""Greedy search in ONNX files: its own loop gives the results of the loop for all settings."""

import numpy as np
import pytest
from random_translators import OPTIONS, SIZES, V, found_by, of_transformer, opened, source_ids
from tiers import with_long

from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.export.to_onnx import optimize
from tfk_transformer.export.to_onnx.calibration import observe_rows
from tfk_transformer.export.to_onnx.layer_operators import onnx_matmul
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


def int8_graph(translator):
    ids = np.maximum(source_ids(), 2)
    rounding = WeightRounding(observe_rows(translator.model, ids, ids))
    return generate_graph(translator, rounding=rounding)


# A model each.
@pytest.mark.parametrize("options", with_long(OPTIONS, {*OPTIONS} - {"plain", "m2m", "t5", "ssru"}))
def test_float32_loops_agree(options, tokenizer, tmp_path):
    translator = of_transformer(tokenizer, **options)
    session = opened(generate_graph(translator), tmp_path / "generate.onnx")
    assert_loops_agree(session)
    assert_loops_agree(session, max_length=5, length_penalty=0.6)


@pytest.mark.parametrize("options", with_long(OPTIONS, {*OPTIONS} - {"plain", "ssru"}))
def test_int8_loops_agree(options, tokenizer, tmp_path, monkeypatch):
    # As with a vocabulary of 6,000 tokens, for which only the greedy loop scales logits separately.
    monkeypatch.setattr(onnx_matmul, "SCALED_GREEDY_COLUMNS", range(V, V + 1))
    graph = int8_graph(of_transformer(tokenizer, **options))
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


def products_of_loops(graph):
    """The body of the outer loop, and the products with weights in the loops in it."""
    (outer_loop,) = [node for node in graph if node.op_type == "Loop"]
    outer_body = outer_loop.attributes["body"].as_graph()
    loops = [node for node in outer_body if node.op_type == "Loop"]
    return outer_body, [
        node
        for loop in loops
        for node in loop.attributes["body"].as_graph()
        if node.op_type in ("MatMul", "MatMulIntegerToFloat", "Gemm")
        and is_constant(node.inputs[1])
    ]


@pytest.mark.parametrize("write", [generate_graph, int8_graph])
@pytest.mark.parametrize("is_large", [False, True])
def test_matrices_are_prepacked(is_large, write, tokenizer, monkeypatch):
    """onnxruntime prepacks constants of a product's own graph and of the graph around it."""
    if is_large:
        monkeypatch.setattr(optimize, "MIN_LARGE_ELEMENTS", 0)
    graph = write(of_transformer(tokenizer, tie_embeddings="all")).graph
    outer_body, products = products_of_loops(graph)
    # In each loop: of two decoder layers six products with weights, and the output.
    assert len(products) == 2 * (2 * 6 + 1)
    for product in products:
        home = outer_body if is_large else product.graph
        assert product.inputs[1].producer().graph is home
    matrices = {id(product.inputs[1]) for product in products}
    assert len(matrices) == len(products) // (2 if is_large else 1)


def test_large_models_have_the_results_of_small_ones(tokenizer, tmp_path, monkeypatch):
    translator = of_transformer(tokenizer, tie_embeddings="all")
    results = []
    for name, elements in (("small", 2**25), ("large", 0)):
        monkeypatch.setattr(optimize, "MIN_LARGE_ELEMENTS", elements)
        session = opened(generate_graph(translator), tmp_path / f"{name}.onnx")
        results.append([found_by(session, {"beam_size": size}) for size in (1, 3)])
    for small, large in zip(*results, strict=True):
        for one, other in zip(small, large, strict=True):
            np.testing.assert_array_equal(one, other)
