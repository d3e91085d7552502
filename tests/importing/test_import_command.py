"""The command `import`, what its bundle remembers, exports of it, and folders that do not fit."""

import json
import re
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from marian_folder import sentences, split_weights, write_folder
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.export.exporting import export
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.pipelines.translator import Translator

FRONT_MATTER = "---\nlanguage:\n- de\nlicense: apache-2.0\n---\n# A model\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    sizes = {"encoder_layers": 1, "decoder_layers": 1}  # exports take a time that grows with them
    path = tmp_path_factory.mktemp("marian") / "opus"
    made = write_folder(
        path,
        dropped=["▁ka"],
        tags=[">>fra<<"],
        separate=True,
        num_beams=6,
        length_penalty=1.0,
        spread=0.2,
        **sizes,
    )
    (made / "README.md").write_text(FRONT_MATTER)
    (made / "generation_config.json").write_text(
        json.dumps(
            {"num_beams": 4, "max_length": 47, "repetition_penalty": 1.5, "do_sample": False}
        )
    )
    return made


@pytest.fixture(scope="module")
def imported(folder, tmp_path_factory):
    """The result of the command, and its bundle."""
    out = tmp_path_factory.mktemp("imported")
    (out / "probes.txt").write_text(
        "".join(f"{text}\n" for text in sentences("source", 30, seed=2)), encoding="utf-8"
    )
    done = CliRunner().invoke(
        main.app,
        ["import", str(folder), "--out", str(out / "bundle"), "--probes", str(out / "probes.txt")],
    )
    assert done.exit_code == 0, done.output
    return done.output, out / "bundle"


def test_import_prints_unsaved_values(imported):
    output, bundle = imported
    lines = output.splitlines()
    read = lines.pop(1)
    assert re.fullmatch(
        r"read: 1 \+ 1 layers, width 22, feed-forward 29, 11 heads, vocabulary \d+ and \d+, "
        r"0\.0 million parameters, weights in float32; files: (.*)",
        read,
    )
    assert read.endswith(
        "README.md, config.json, generation_config.json, model.safetensors, source.spm, "
        "target.spm, target_vocab.json, tokenizer_config.json, vocab.json"
    )
    assert lines == [
        "MarianMT: opus, license: apache-2.0",
        (
            "search settings, with which the bundle translates: beam_size=4, "
            "max_length_factor=1000.0, max_length=46, length_penalty=1.0, "
            "length_penalty_form=length, early_stopping=false, forced_eos=false"
        ),
        "note: repetition_penalty 1.5 is not imported: with several beams, generate applies it to "
        "log-probabilities, not to logits",
        "note: 6 of 349 tokens of 30 sample texts are unknown to the model, first '▁ka' in 'kaßu "
        "mikami te kasoßu véßuna sote ßute.'",
        f"bundle: {bundle}",
    ]


def test_bundle_records_its_origin(imported, tmp_path):
    _, bundle = imported
    origin = inspect(bundle)["facts"]["origin"]
    assert {name: origin[name] for name in ("family", "name", "license")} == {
        "family": "MarianMT",
        "name": "opus",
        "license": "apache-2.0",
    }
    assert (origin["search"]["beam_size"], origin["search"]["max_length"]) == (4, 46)
    translator = Translator.load(bundle)
    assert translator.probes == sentences("source", 30, seed=2)
    translator.save(tmp_path / "again", metrics={"bleu": 1.0})
    assert json.loads((tmp_path / "again" / "metrics.json").read_text()) == {
        "bleu": 1.0,
        "origin": origin,
        "search": origin["search"],
    }


def test_export_equals_imported_model(imported, tmp_path):
    """The export itself compares ids and scores with the model's; here are texts that were no
    probes.

    The sides have vocabularies of their own, so a file that decoded with the source's would write
    other words.
    """
    _, bundle = imported
    translator = Translator.load(bundle)
    export(translator, tmp_path / "files", ["onnx"])
    texts = [*sentences("source", 20, seed=8), ">>fra<< kalo mi", "unbekannt: ж", "</s> ka <pad>"]
    expected = [translation.text for translation in translator.translate(texts)]
    file = load(tmp_path / "files" / "translate.onnx")
    assert [translation.text for translation in file.translate(texts)] == expected


def refused(folder):
    with pytest.raises((ValueError, ImportError)) as error:
        import_model(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def changed_config(folder, **changes):
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in config.items() if value != "gone"}))


@pytest.fixture
def copied(tmp_path):
    return write_folder(tmp_path / "folder")


def test_every_missing_file_is_named(copied, tmp_path):
    for name in ("source.spm", "vocab.json", "model.safetensors"):
        (copied / name).unlink()
    assert refused(copied).endswith(f"{copied} without model.safetensors (or pytorch_model.bin).")
    (copied / "model.safetensors").write_bytes(b"")
    assert refused(copied).endswith(f"{copied} without source.spm, vocab.json.")
    assert refused(tmp_path / "none").endswith(
        f"{tmp_path / 'none'}, which does not exist; check the path."
    )


def test_mismatched_arrays_are_named(copied):
    path = copied / "model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    arrays["model.encoder.layers.0.fc1.weight"] = arrays[
        "model.encoder.layers.0.fc1.weight"
    ].T.copy()
    arrays["model.encoder.layernorm_embedding.weight"] = arrays.pop(
        "model.decoder.layers.2.fc2.bias"
    )
    arrays["final_logits_bias"] = arrays["final_logits_bias"][0]
    safetensors.numpy.save_file(arrays, path)
    message = refused(copied)
    for part in (
        "'model.encoder.layers.0.fc1.weight' of shape (22, 29) for (29, 22)",
        "no 'model.decoder.layers.2.fc2.bias' (22,)",
        "an unexpected 'model.encoder.layernorm_embedding.weight' (22,)",
        "'final_logits_bias' of shape (131,) for (1, 131)",
    ):
        assert part in re.sub(r"\b(\d+),\) for \(1, \d+\)", "131,) for (1, 131)", message)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"model_type": "bart"}, "a model_type of marian, m2m_100, mbart, .*, got 'bart', whose"),
        (
            {"activation_function": "mish", "d_model": "gone"},
            "d_model: Field required; activation_function: .*'silu', .*, got 'mish'",
        ),
        (
            {"decoder_attention_heads": 2},
            "decoder_attention_heads: expected 11, the value of encoder_attention_heads, got 2",
        ),
        ({"normalize_before": True}, "normalize_before: Input should be False, got True"),
        (
            {"static_position_embeddings": False},
            "static_position_embeddings: Input should be True, got False",
        ),
        (
            {"tie_word_embeddings": False},
            "tie_word_embeddings: expected True with share_encoder_decoder_embeddings, got False",
        ),
        ({"eos_token_id": 3}, r"the rows of config.json: </s> 3, got 0"),
        ({"encoder_layers": 10**9}, "the configuration does not fit"),
        ({"max_position_embeddings": 10**9}, "max_length 1,000,000,000"),
        (
            {"encoder_attention_heads": 7, "decoder_attention_heads": 7},
            "model_dim must be a multiple of num_heads",
        ),
    ],
    ids=str,
)
def test_unsupported_values_are_named(copied, changes, part):
    changed_config(copied, **changes)
    assert re.search(part, refused(copied))


def test_a_pickle_needs_torch(copied, monkeypatch):
    (copied / "model.safetensors").rename(copied / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "torch is not installed" in refused(copied)
    assert "pip install torch, or use a folder with model.safetensors" in refused(copied)


def test_broken_weights_are_one_line(copied):
    (copied / "model.safetensors").write_bytes(b"\xff" * 64)
    assert re.search("the weights in .*model.safetensors do not load", refused(copied))


@pytest.mark.parametrize(
    ("dtype", "step"),
    [("float16", 2**-10), (ml_dtypes.bfloat16, 2**-7)],
    ids=["float16", "bfloat16"],
)
def test_half_precision_is_read(copied, dtype, step):
    path = copied / "model.safetensors"
    whole = import_model(copied).model.get_weights()
    safetensors.numpy.save_file(
        {name: array.astype(dtype) for name, array in safetensors.numpy.load_file(path).items()},
        path,
    )
    for one, other in zip(whole, import_model(copied).model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=step, atol=1e-6)


def test_split_weights_are_read(copied):
    whole = import_model(copied).model.get_weights()
    split_weights(copied)
    for one, other in zip(whole, import_model(copied).model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_missing_weight_file_is_named(copied, tmp_path):
    index = split_weights(copied)
    parts = json.loads(index.read_text())
    (copied / "model-00002-of-00002.safetensors").rename(tmp_path / "elsewhere.safetensors")
    assert refused(copied).endswith(
        "expected the files that it names, got none for model-00002-of-00002.safetensors"
    )
    names = parts["weight_map"]
    index.write_text(
        json.dumps({"weight_map": {name: "../elsewhere.safetensors" for name in names}})
    )
    assert (
        "expected the file of each array under weight_map, in the folder of this file"
        in refused(copied)
    )
    index.write_text(
        json.dumps({"weight_map": {name: "model-00001-of-00002.safetensors" for name in names}})
    )
    assert "expected the arrays that it names in their files, got none for " in refused(copied)


def test_failed_import_writes_nothing(copied, tmp_path):
    changed_config(copied, decoder_layers=4)
    done = CliRunner().invoke(main.app, ["import", str(copied), "--out", str(tmp_path / "bundle")])
    assert isinstance(done.exception, ValueError)
    assert "no 'model.decoder.layers.3.self_attn.q_proj.weight' (22, 22)" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    done = CliRunner().invoke(
        main.app, ["import", str(tmp_path), "--out", str(tmp_path / "bundle")]
    )
    assert f"got {tmp_path} without config.json" in str(done.exception)
    done = CliRunner().invoke(main.app, ["import", str(copied), "--out", str(copied)])
    assert "expected a new folder" in str(done.exception)
