"""An imported M2M100 is exported with the same files.

The row of the target language is the row of the start token after training.
"""

import json

import numpy as np
import pytest
import safetensors.numpy
from multilingual_folder import write_m2m100, write_nllb

from tfk_transformer.constants import START_ID
from tfk_transformer.export.exporting import export
from tfk_transformer.export.to_libraries.hugging_face_files import write_m2m100 as write
from tfk_transformer.importing.model_import import import_model

pytestmark = pytest.mark.usefixtures("few_probes")
LANGUAGES = {"source_language": "de", "target_language": "en"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_m2m100(tmp_path_factory.mktemp("m2m100") / "folder", dropped=["▁ka", "lo"])


@pytest.fixture
def translator(folder):
    return import_model(folder, **LANGUAGES)


def arrays_of(folder):
    return safetensors.numpy.load_file(folder / "model.safetensors")


@pytest.mark.long  # an import, an export and both models' searches
def test_imported_m2m100_round_trip(folder, translator, tmp_path):
    figures = export(translator, tmp_path / "out", ["huggingface"])
    assert figures["huggingface"] == {
        "family": "M2M100",
        "sentences": 12,
        "largest_token_score_difference": 0.0,
    }
    written, config_read = (
        tmp_path / "out" / "huggingface",
        json.loads((folder / "config.json").read_text()),
    )
    theirs, ours = arrays_of(folder), arrays_of(written)
    assert theirs.keys() == ours.keys()
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert json.loads((written / "vocab.json").read_text()) == json.loads(
        (folder / "vocab.json").read_text()
    )
    config = json.loads((written / "config.json").read_text())
    assert {name: config[name] for name in set(config) & set(config_read)} == {
        name: config_read[name] for name in set(config) & set(config_read)
    }
    settings = json.loads((written / "generation_config.json").read_text())
    rows = {
        code: len(json.loads((folder / "vocab.json").read_text())) + i
        for i, code in enumerate("en ha is ja cs ru zh de".split())
    }
    assert settings["forced_bos_token_id"] == rows["en"]
    assert [rows["de"]] in settings["bad_words_ids"]
    assert settings["num_beams"] == 5


def test_language_row_is_start_token_row(folder, translator, tmp_path):
    table = translator.model.named_weights["source_embedding/embeddings"]
    trained = np.array(table)
    trained[START_ID] += 0.25
    table.assign(trained)
    write(translator, tmp_path / "out")
    first = len(json.loads((folder / "vocab.json").read_text()))  # "en" is the first language
    changed = (
        arrays_of(tmp_path / "out")["model.shared.weight"]
        - arrays_of(folder)["model.shared.weight"]
    )
    np.testing.assert_allclose(changed[first], 0.25, atol=1e-6)
    assert not np.delete(changed, first, axis=0).any()
    again = import_model(tmp_path / "out", **LANGUAGES).model.named_weights[
        "source_embedding/embeddings"
    ]
    np.testing.assert_array_equal(np.array(again)[START_ID], trained[START_ID])


def test_m2m100_refuses_other_models(folder, translator, tmp_path):
    bias = translator.model.named_weights["output/bias"]
    bias.assign(np.array(bias) + np.float32(0.1))
    with pytest.raises(
        ValueError,
        match=r"got an output bias other than 0, which training changed \(expected 0: freeze it",
    ):
        write(translator, tmp_path / "out")
    nllb = import_model(
        write_nllb(tmp_path / "nllb"), source_language="deu_Latn", target_language="eng_Latn"
    )
    with pytest.raises(
        ValueError, match="options that M2M100 of Hugging Face does not support: tokenizers of NLLB"
    ):
        export(nllb, tmp_path / "out", ["huggingface"])
    assert not (tmp_path / "out").exists()
