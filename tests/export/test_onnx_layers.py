import numpy as np
import onnx_ir as ir
import pytest
from random_translators import (
    OPTIONS,
    SIZES,
    V,
    found_by,
    of_transformer,
    opened,
    source_ids,
    translator_of,
)
from tiers import with_long

from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.export.to_onnx.onnx_models import generate_graph
from tfk_transformer.inference.signatures import GENERATE
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.search.signature_functions import signature_function
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

SEARCHES = (
    {"beam_size": 1},
    {"beam_size": 3, "n_best": 3},
    {"beam_size": 2, "coverage_penalty": 0.4, "no_repeat_ngram_size": 2},
)


# Each value of an option is in one of these.
COMBINED = {
    "post_dropout, learned positions": {
        "norm": "post_dropout",
        "encoder_final_norm": True,
        "output_bias": True,
        "tie_embeddings": "target",
        "positions": "learned",
        "embedding_norm": True,
        "shared_projections": True,
        "attention_scale": "key_dim",
        "attention_bias": ["query", "value"],
        "source_end": False,
        "ff_activation": "gelu",
        "target_prefix": (2, 8, 5),
    },
    "rms, positions by layer": {
        "decoder_layers": 1,
        "positions": "relative_by_layer",
        "position_buckets": 6,
        "position_max_distance": 5,
        "norm_type": "rms",
        "ff_gated": True,
        "ff_bias": False,
        "ff_activation": "gelu_tanh",
        "decoder_ff_dim": 11,
        "scale_embeddings": False,
        "source_prefix": (7, 5),
        "encoder_layers": 2,
    },
    "ssru, post": {
        "decoder_layers": 1,
        "decoder_mixer": "ssru",
        "norm": "post",
        "norm_epsilon": 1e-5,
        "positions": "sinusoidal_paper_halves",
        "attention_bias": True,
        "ff_activation": "silu",
        "source_suffix": (7, 5),
        "tie_embeddings": "all",
    },
    "keys_are_values, halves": {
        "keys_are_values": True,
        "positions": "sinusoidal_halves",
        "position_offset": 2,
        "decoder_final_norm": False,
        "ff_activation": "gelu_sigmoid",
        "attention_bias": ["output"],
    },
    "relative, heads of any width": {
        "decoder_layers": 1,
        "positions": "relative",
        "position_buckets": 6,
        "position_max_distance": 5,
        "key_dim": 5,
        "value_dim": 7,
        "attention_bias": ["key", "value"],
    },
}
# The short cases have the three norms, learned positions, positions by layer and the SSRU.
LONG = ("keys_are_values, halves", "relative, heads of any width")
FAMILIES = {name: OPTIONS[name] for name in ("marian", "m2m", "mbart", "t5")}


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)


def assert_equal(translator, session, searches=SEARCHES):
    search = signature_function(translator.functions, GENERATE)
    for settings in searches:
        expected = search(
            source_ids(),
            np.zeros((1, 0), "int32"),
            *SearchSettings(**settings).as_numbers().values(),
        )
        ids, scores = found_by(session, settings)
        np.testing.assert_array_equal(expected["ids"], ids)
        np.testing.assert_allclose(expected["scores"], scores, atol=1e-4)
    # Not all alike: the output depends on the input.
    assert len({tuple(row) for row in ids[:, 0]}) > 2


@pytest.mark.parametrize(
    "options",
    with_long({**COMBINED, **FAMILIES}, {*LONG, *FAMILIES}),  # a search each
)
def test_onnx_options_match_keras(options, tokenizer, tmp_path):
    translator = of_transformer(tokenizer, **options)
    graph = generate_graph(translator)
    assert_equal(translator, opened(graph, tmp_path / "search.onnx"))


def test_decoder_only_matches_keras(tokenizer, tmp_path):
    sizes = {name: size for name, size in SIZES.items() if name != "encoder_layers"}
    translator = translator_of(
        tokenizer, LanguageModel, **sizes, vocab_size=V, tie_embeddings="all"
    )
    graph = generate_graph(translator)
    assert_equal(translator, opened(graph, tmp_path / "search.onnx"), SEARCHES[:2])


def test_generate_graph_is_standard(tokenizer):
    translator = of_transformer(tokenizer)
    graph = generate_graph(translator).graph
    assert {node.domain for node in graph.all_nodes()} == {""}


def loop_bodies(graph):
    """The bodies of loops, from the outermost to the innermost."""
    for node in graph:
        if node.op_type == "Loop":
            yield node.attributes["body"].as_graph()
            yield from loop_bodies(node.attributes["body"].as_graph())


def inner_loops(translator):
    """The bodies of the loop for greedy search and of the loop for all settings."""
    _, greedy, beams = loop_bodies(generate_graph(translator).graph)
    return greedy, beams


def nodes_of_steps(body):
    """The nodes of a body without those that onnxruntime folds when it loads a file."""
    return [
        node
        for node in body
        if not all(value is None or value.const_value is not None for value in node.inputs)
    ]


def test_decoder_layer_loops_are_small(tokenizer):
    two = inner_loops(of_transformer(tokenizer))
    one = inner_loops(of_transformer(tokenizer, decoder_layers=1))
    for larger, smaller in zip(two, one, strict=True):
        assert 10 < len(nodes_of_steps(larger)) - len(nodes_of_steps(smaller)) < 35


def test_search_options_are_in_a_branch(tokenizer):
    _, body = inner_loops(of_transformer(tokenizer))
    (branching,) = [node for node in body if node.op_type == "If"]
    names = ("then_branch", "else_branch")
    with_options, plain = (branching.attributes[name].as_graph() for name in names)
    # Coverage takes logarithms of the attention's mean over heads.
    assert {"Log", "ReduceMean"} <= {node.op_type for node in with_options}
    often_run = [node for graph in (body, plain) for node in graph if node is not branching]
    assert not {"Log", "ReduceMean", "If"} & {node.op_type for node in often_run}
    # What does not change from step to step is computed before the loop.
    assert all(
        any(value is not None and value.graph in (body, plain) for value in node.inputs)
        for node in plain
    )


def test_greedy_loop_is_small(tokenizer):
    greedy, beams = inner_loops(of_transformer(tokenizer))
    assert "If" not in {node.op_type for node in greedy}
    assert len(nodes_of_steps(greedy)) < len(nodes_of_steps(beams)) - 50


def test_each_weight_is_stored_once(tokenizer):
    translator = of_transformer(tokenizer, tie_embeddings="all")
    graph = generate_graph(translator).graph
    kept = [value for part in (graph, *graph.subgraphs()) for value in part.initializers.values()]
    arrays = [value.const_value for value in kept if value.const_value.dtype == ir.DataType.FLOAT]
    # What the search has of its own is no larger.
    positions, chosen_from = SIZES["max_length"] * SIZES["model_dim"], 3 * V
    floats = sum(array.size for array in arrays if array.size > 1)
    assert 0 <= floats - translator.model.count_params() - positions <= chosen_from


def test_template_keeps_no_weights(tokenizer):
    first, second = of_transformer(tokenizer), of_transformer(tokenizer, norm="post")
    graphs = [
        ir.to_proto(generate_graph(translator)).SerializeToString()
        for translator in (first, second, first)
    ]
    assert graphs[0] == graphs[2] != graphs[1]
