from pathlib import Path

import keras
import numpy as np
import onnx_ir as ir
import pytest

from tfk_transformer.config.search_settings import SETTING_DTYPES, SearchSettings
from tfk_transformer.export.functions import traced
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.signatures import GENERATE
from tfk_transformer.export.to_onnx.onnx_layers import PROFILES, int8_but
from tfk_transformer.export.to_onnx.onnx_models import generate_graph, search_graph
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

H, V = 3, 15
SIZES = {"model_dim": 18, "ff_dim": 13, "num_heads": H, "max_length": 17, "encoder_layers": 1, "decoder_layers": 2}
SEARCHES = ({"beam_size": 1}, {"beam_size": 3, "n_best": 3}, {"beam_size": 2, "coverage_penalty": 0.4, "no_repeat_ngram_size": 2})
OPTIONS = {
    "plain": {},
    "post": {"norm": "post", "attention_bias": True, "tie_embeddings": "all", "ff_activation": "gelu"},
    "post_dropout": {"norm": "post_dropout", "encoder_final_norm": True, "output_bias": True, "tie_embeddings": "target"},
    "pre": {"decoder_final_norm": False, "scale_embeddings": False, "positions": "learned", "ff_activation": "silu"},
    "shared": {"shared_projections": True, "attention_scale": "key_dim", "attention_bias": ["query", "value"]},
    "keys_are_values": {"keys_are_values": True, "positions": "sinusoidal_halves", "attention_bias": ["output"], "tie_embeddings": "all"},
}


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)


def translator_of(tokenizer, kind, **options):
    """A translator of random weights, which vary enough that hypotheses differ early."""
    keras.utils.set_random_seed(3)
    model = kind(kind.config_type(**options))
    model.build()
    random = np.random.default_rng(5)
    model.set_weights([weight + random.normal(scale=0.3, size=weight.shape) for weight in model.get_weights()])
    return Translator(model, tokenizer)


def of_transformer(tokenizer, **options):
    return translator_of(tokenizer, Transformer, **{**SIZES, "source_vocab_size": V, "target_vocab_size": V, **options})


@pytest.fixture(scope="module")
def searches(tokenizer):
    """Searches around the layers, by the widths of heads: all that a search knows of a model's options."""
    return {}


def search_of(searches, translator):
    c = translator.model.config
    key = (c.architecture, c.query_width, c.value_width)
    if key not in searches:
        searches[key] = search_graph(translator)
    return searches[key]


def source_ids():
    """Rows of unlike lengths, one of them blank."""
    ids = np.random.default_rng(1).integers(3, V, (5, 7)).astype("int32")
    for row, length in zip(ids, (7, 1, 4, 2, 6), strict=True):
        row[length - 1 :] = 0
        row[length - 1] = 2
    return ids


def opened(graph, path):
    ir.save(graph, path)
    return open_session(path)


def found_by(session, settings):
    whole = {name: np.array(value, SETTING_DTYPES[name]) for name, value in settings.items()}
    return session.run(["ids", "scores"], {"source_ids": source_ids(), **whole})


def expected_of(translator, settings):
    found = traced(translator.functions, GENERATE)(
        source_ids(), np.zeros((1, 0), "int32"), *SearchSettings(**settings).model_dump().values()
    )
    return found["ids"].numpy(), found["scores"].numpy()


def assert_equal(translator, session, searches=SEARCHES):
    for settings in searches:
        (ids, scores), (other_ids, other_scores) = expected_of(translator, settings), found_by(session, settings)
        np.testing.assert_array_equal(ids, other_ids)
        np.testing.assert_allclose(scores, other_scores, atol=1e-4)
    assert len({tuple(row) for row in ids[:, 0]}) > 2  # not all alike: the output depends on the input


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_gives_the_models_ids_and_scores(options, tokenizer, searches, tmp_path):
    translator = of_transformer(tokenizer, **options)
    for name in ("portable", "fast"):
        graph = generate_graph(search_of(searches, translator), translator, PROFILES[name])
        assert_equal(translator, opened(graph, tmp_path / f"{name}.onnx"))


def test_heads_may_be_of_any_width(tokenizer, searches, tmp_path):
    translator = of_transformer(tokenizer, key_dim=5, value_dim=7, attention_bias=["key", "value"])
    for name in ("portable", "fast"):
        graph = generate_graph(search_of(searches, translator), translator, PROFILES[name])
        assert_equal(translator, opened(graph, tmp_path / f"{name}.onnx"))


def test_a_decoder_alone_too(tokenizer, searches, tmp_path):
    sizes = {name: size for name, size in SIZES.items() if name != "encoder_layers"}
    translator = translator_of(tokenizer, LanguageModel, **sizes, vocab_size=V, tie_embeddings="all")
    for name in ("portable", "fast"):
        graph = generate_graph(search_of(searches, translator), translator, PROFILES[name])
        assert_equal(translator, opened(graph, tmp_path / f"{name}.onnx"), SEARCHES[:2])


def test_the_portable_profile_has_standard_operators_alone(tokenizer, searches):
    translator = of_transformer(tokenizer)
    domains = {
        name: {node.domain for node in generate_graph(search_of(searches, translator), translator, PROFILES[name]).graph.all_nodes()}
        for name in ("portable", "fast")
    }
    assert domains == {"portable": {""}, "fast": {"", "com.microsoft"}}


def loop_bodies(graph):
    """The bodies of loops, from the outermost to the innermost."""
    for node in graph:
        if node.op_type == "Loop":
            yield node.attributes["body"].as_graph()
            yield from loop_bodies(node.attributes["body"].as_graph())


def test_a_decoder_layer_has_fewer_than_25_nodes_in_the_loop(tokenizer, searches):
    two = of_transformer(tokenizer)
    one = of_transformer(tokenizer, decoder_layers=1)
    counts = [
        len(list(loop_bodies(generate_graph(search, translator, PROFILES["fast"]).graph))[-1])
        for search, translator in ((search_of(searches, two), two), (search_graph(one), one))
    ]
    assert 10 < counts[0] - counts[1] < 25


def test_what_plain_searches_do_not_ask_for_stands_in_a_branch_of_its_own(tokenizer, searches):
    translator = of_transformer(tokenizer)
    body = list(loop_bodies(generate_graph(search_of(searches, translator), translator, PROFILES["fast"]).graph))[-1]
    (branching,) = [node for node in body if node.op_type == "If"]
    asked, plain = (branching.attributes[name].as_graph() for name in ("then_branch", "else_branch"))
    assert "Log" in {node.op_type for node in asked}  # of coverage
    assert not {"Log", "If"} & {node.op_type for node in (*[node for node in body if node is not branching], *plain)}
    # What does not change from step to step is computed before the loop.
    assert all(any(value is not None and value.graph in (plain, body) for value in node.inputs) for node in plain)


def test_each_weight_stands_in_the_file_once(tokenizer, searches):
    translator = of_transformer(tokenizer, tie_embeddings="all")
    graph = generate_graph(search_of(searches, translator), translator, PROFILES["portable"]).graph
    kept = [value for part in (graph, *graph.subgraphs()) for value in part.initializers.values()]
    arrays = [value.const_value for value in kept if value.const_value.dtype == ir.DataType.FLOAT]
    positions, chosen_from = SIZES["max_length"] * SIZES["model_dim"], 3 * V  # what the search has of its own is no larger
    floats = sum(array.size for array in arrays if array.size > 1)
    assert 0 <= floats - translator.model.count_params() - positions <= chosen_from


def has_vnni() -> bool:
    """Return whether the processor multiplies 8-bit integers without saturation."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.is_file() and "vnni" in cpuinfo.read_text()


def test_int8_weights_are_close_to_the_models_and_kept_ones_are_the_models(tokenizer, searches, tmp_path):
    translator = of_transformer(tokenizer)
    search, settings = search_of(searches, translator), {"beam_size": 1, "max_length": 1}
    rounded = opened(generate_graph(search, translator, PROFILES["int8"]), tmp_path / "int8.onnx")
    difference = np.abs(expected_of(translator, settings)[1] - found_by(rounded, settings)[1]).max()
    # Without VNNI, onnxruntime's products of 8-bit weights saturate: 0.309 with AVX2 only.
    assert 1e-5 < difference < (0.3 if has_vnni() else 0.35)
    kept = opened(generate_graph(search, translator, int8_but(("/",))), tmp_path / "kept.onnx")
    np.testing.assert_allclose(
        expected_of(translator, settings)[1], found_by(kept, settings)[1], atol=0.1
    )  # the table is looked up in int8


def test_the_search_is_left_as_it_is(tokenizer, searches):
    translator = of_transformer(tokenizer)
    search = search_of(searches, translator)
    before = [node.op_type for node in search.graph.all_nodes()]
    generate_graph(search, translator)
    assert [node.op_type for node in search.graph.all_nodes()] == before
    assert set(before) >= {"Read", "Step"}
