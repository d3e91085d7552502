"""ONNX files with external weights, which are required above 2 GB; here above 1 KB."""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tfk_transformer.config.search_settings import setting_rules
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.parity import probe_ids
from tfk_transformer.export.runtime import sessions
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
from tfk_transformer.export.runtime.sessions import METADATA, OnnxFile, open_session
from tfk_transformer.export.to_onnx.conversion import quietly
from tfk_transformer.export.to_onnx.onnx_file import MAX_INLINE_BYTES, OnnxFiles
from tfk_transformer.export.to_onnx.onnx_models import generate_graph

NAMES = ("generate.onnx", "translate.onnx")
TEXTS = ["forty-two", "seven"]


@pytest.fixture(scope="module")
def models(exported):
    with quietly("onnx_ir.serde"):
        return {name: ir.load(exported / name) for name in NAMES}


@pytest.fixture
def parted(models, translator, tmp_path):
    OnnxFiles(models, tmp_path, translator.model.config, {"search": setting_rules()}, largest=1000)
    return tmp_path


def inside(graph):
    """Yield the initializers inside an ONNX file, including those in loop bodies."""
    yield from (
        tensor for tensor in graph.initializer if tensor.data_location != onnx.TensorProto.EXTERNAL
    )
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from inside(attribute.g)


def test_large_weights_are_external(parted, models, translator):
    assert sorted(path.name for path in parted.iterdir()) == sorted(
        [*NAMES, *(f"{name}.data" for name in NAMES)]
    )
    for name in NAMES:
        graph = onnx.load(parted / name, load_external_data=False).graph
        numbers = [
            tensor for tensor in inside(graph) if tensor.data_type != onnx.TensorProto.STRING
        ]
        assert max(len(tensor.raw_data) for tensor in numbers) <= MAX_INLINE_BYTES
        assert (parted / f"{name}.data").stat().st_size >= 4 * translator.model.count_params()
        assert inspect(parted / name)["files"] == {
            file: (parted / file).stat().st_size for file in (name, f"{name}.data")
        }
    tensors = [
        value.const_value
        for model in models.values()
        for graph in model.graphs()
        for value in graph.initializers.values()
    ]
    # The models themselves are as they were.
    assert not any(isinstance(tensor, ir.ExternalTensor) for tensor in tensors)


def test_parted_file_opens_anywhere(parted, exported, translator, tmp_path_factory, monkeypatch):
    source = probe_ids(TEXTS, translator.source_tokenizer, 32)
    expected = OnnxTranslator(exported / "translate.onnx").translate(TEXTS, n_best=2)
    for folder, path in (
        (tmp_path_factory.mktemp("elsewhere"), parted),
        (parted.parent, parted.name),
    ):
        monkeypatch.chdir(folder)
        assert OnnxTranslator(f"{path}/translate.onnx").translate(TEXTS, n_best=2) == expected
        (ids, _) = open_session(f"{path}/generate.onnx").run(None, {"source_ids": source})
        assert translator.target_tokenizer.decode(ids[:, 0]) == ["zweiundvierzig", "sieben"]


def test_external_weights_count_as_the_file(parted, monkeypatch):
    path = parted / "translate.onnx"
    monkeypatch.setattr(sessions, "HEAVY_FILE", path.stat().st_size + 1)
    file = OnnxFile(path, text_operators=True)
    assert file.session(1, small=True) is file.session(1, small=False)


def test_only_the_first_file_spins(parted):
    first = OnnxFile(parted / "translate.onnx", text_operators=True)
    other = OnnxFile(parted / "generate.onnx", export=first)
    options = [file.session(2, small=False).get_session_options() for file in (first, other)]
    assert [each.get_session_config_entry(sessions.SPINNING) for each in options] == ["1", "0"]


def test_open_file_can_be_rewritten(parted, models, translator):
    """As at the end of an export, when the parity figures are known."""
    opened = OnnxTranslator(parted / "translate.onnx")
    before = opened.translate(TEXTS)
    OnnxFiles(
        models,
        parted,
        translator.model.config,
        {"search": setting_rules(), "parity": {"ids": "equal"}},
        largest=1000,
    )
    assert (
        opened.translate(TEXTS)
        == before
        == OnnxTranslator(parted / "translate.onnx").translate(TEXTS)
    )


def test_metadata_is_appended_to_file(models, translator, tmp_path, monkeypatch):
    saved, save = [], ir.save
    monkeypatch.setattr(
        ir, "save", lambda model, path, *more: saved.append(path.name) or save(model, path, *more)
    )
    files = OnnxFiles(models, tmp_path, translator.model.config, {"search": setting_rules(32)})
    before = {name: (tmp_path / name).read_bytes() for name in NAMES}
    opened = OnnxTranslator(tmp_path / "translate.onnx")
    translations = opened.translate(TEXTS)
    files.add_metadata(parity={"ids": "equal"})
    assert saved == list(NAMES)
    assert opened.translate(TEXTS) == translations  # a file in use
    for name in NAMES:
        assert (tmp_path / name).read_bytes()[: len(before[name]) - 5000] == before[name][:-5000]
        onnx.checker.check_model(tmp_path / name) if name == "generate.onnx" else None
        metadata = [entry.key for entry in onnx.load(tmp_path / name).metadata_props]
        assert metadata.count(METADATA) == 1
        assert len(set(metadata)) == len(metadata)
        file = OnnxFile(tmp_path / name, text_operators=True)
        file.session(1, small=True)
        read = file.metadata
        assert read["parity"] == {"ids": "equal"} == inspect(tmp_path / name)["parity"]
        assert read["search"]["max_length"]["default"] == 32
        assert read["config"] == translator.model.config.model_dump(mode="json")


@pytest.mark.parametrize("cut", [True, False])
def test_broken_weights_are_refused(parted, cut):
    data = parted / "translate.onnx.data"
    data.write_bytes(data.read_bytes()[:-4]) if cut else data.unlink()
    with pytest.raises(ValueError, match="translate.onnx does not load"):
        OnnxTranslator(parted / "translate.onnx")
    with pytest.raises(
        ValueError,
        match=(
            "expected the weights of .* in translate.onnx.data next to it, got a missing or "
            "truncated file"
        ),
    ):
        inspect(parted / "translate.onnx")


def test_conversion_can_be_repeated(translator):
    """Each conversion has names of its own: TensorFlow must not find two functions of one name."""
    first, second = (
        Counter(node.op_type for node in generate_graph(translator).graph.all_nodes())
        for _ in range(2)
    )
    assert first == second
    assert first["Loop"] == 3


def test_weights_keep_keras_names(translator, models):
    expected = {
        name: weight.numpy()
        for name, weight in translator.model.named_weights.items()
        if "feed_forward" in name
    }
    actual = {
        name: value.const_value
        for graph in models["generate.onnx"].graphs()
        for name, value in graph.initializers.items()
    }
    assert len(expected) == 16
    for name, weight in expected.items():
        np.testing.assert_array_equal(actual[name].numpy(), weight)


def test_small_weights_are_embedded(models, translator, tmp_path):
    OnnxFiles(models, tmp_path, translator.model.config)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
