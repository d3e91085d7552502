"""The templates in the package: they belong to the TensorFlow code, and exports need no more."""

import sys
from pathlib import Path

import pytest
from random_translators import V, of_transformer
from tiers import with_long

from tfk_transformer.export.to_onnx import onnx_models
from tfk_transformer.export.to_onnx.templates import expansion
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

FOLDER = Path(expansion.__file__).parent
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import template_building as building  # noqa: E402

# A search is traced and converted in five processor seconds. test_onnx_layers.py compares searches
# of the templates with the TensorFlow code.
LONG = {f"{name}.onnx" for name in building.TEMPLATES if name.startswith("search")}


@pytest.mark.parametrize(
    "template", with_long({f"{name}.onnx": name for name in building.TEMPLATES}, LONG)
)
def test_templates_match_the_code(template, tmp_path):
    built = building.build(template, tmp_path)
    equal = built.read_bytes() == (FOLDER / f"{template}.onnx").read_bytes()
    assert equal, "the TensorFlow code has changed: run .venv/bin/python scripts/templates.py"


def test_template_folder_is_complete():
    files = {path.name for path in FOLDER.glob("*.onnx")}
    assert files == {f"{name}.onnx" for name in building.TEMPLATES}


def test_graphs_need_no_conversion(monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    tokenizer = SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)
    translator = of_transformer(tokenizer)
    graphs = [
        onnx_models.generate_graph(translator),
        onnx_models.score_graph(translator),
        *onnx_models.step_graphs(translator).values(),
    ]
    names = [[value.name for value in graph.graph.inputs] for graph in graphs]
    assert not [
        name for inputs in names for name in inputs if name.startswith(expansion.MODEL_INPUT_PREFIX)
    ]


def test_expand_inserts_size_constants():
    sizes = {"source_vocab_size": 7, "target_vocab_size": 0, "max_length": 13}
    graph = expansion.expand("probabilities", sizes).graph
    constants = graph.initializers
    actual = {
        name: int(constants[expansion.MODEL_INPUT_PREFIX + name].const_value.numpy())
        for name in sizes
    }
    assert actual == sizes
    assert [value.name for value in graph.inputs] == ["source_ids"]
