"""Models that are refused, since an import would translate wrongly, and settings that are noted."""

import json
import re

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from marian_folder import write_folder
from marian_npz_folder import write_file
from multilingual_folder import write_m2m100, write_nllb
from typer.testing import CliRunner

from tfk_transformer.cli import main
from tfk_transformer.importing.hugging_face.search_notes import convert_search_settings
from tfk_transformer.importing.model_import import import_model

M2M100 = {"source_language": "de", "target_language": "en"}
NLLB = {"source_language": "deu_Latn", "target_language": "eng_Latn"}


def refused(model, **options):
    with pytest.raises(ValueError) as error:
        import_model(model, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def change_json(path, **changes):
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**values, **changes}))


@pytest.fixture
def marian(tmp_path):
    return write_folder(tmp_path / "folder", encoder_layers=1, decoder_layers=1)


@pytest.fixture
def m2m100(tmp_path):
    return write_m2m100(tmp_path / "m2m100", encoder_layers=1, decoder_layers=1)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("tokenizer_config.json", {"tokenizer_class": "SMALL100Tokenizer"}),
        ("tokenizer_config.json", {"name_or_path": "alirezamsh/small100"}),
        ("config.json", {"_name_or_path": "/models/SMaLL-100"}),
        ("tokenization_small100.py", {}),
    ],
)
def test_small_hundred_is_refused(m2m100, file, changes):
    import_model(m2m100, **M2M100)
    change_json(m2m100 / file, **changes)
    assert "SMaLL-100 the target language before the source" in refused(m2m100, **M2M100)


def test_cached_small_hundred_is_refused(m2m100, tmp_path):
    """The hub's cache names a folder by its commit."""
    folder = tmp_path / "models--alirezamsh--small100" / "snapshots" / "12ab"
    folder.parent.mkdir(parents=True)
    m2m100.rename(folder)
    assert "got SMaLL-100. Other tokenizers" in refused(folder, **M2M100)


def test_legacy_languages_are_refused(tmp_path):
    folder = write_nllb(tmp_path / "nllb", encoder_layers=1, decoder_layers=1)
    import_model(folder, **NLLB)
    change_json(folder / "tokenizer_config.json", legacy_behaviour=True)
    assert "expected legacy_behaviour False" in refused(folder, **NLLB)


def change_array(folder, change):
    """Change one array of the weights, and return its name."""
    path = folder / "model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    name = "model.encoder.layers.0.fc1.weight"
    safetensors.numpy.save_file({**arrays, name: change(arrays[name])}, path)
    return name


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("int8", "I8"), ("uint8", "U8"), (ml_dtypes.float8_e4m3fn, "F8_E4M3")],
    ids=["int8", "uint8", "float8"],
)
def test_quantized_weights_are_refused(marian, dtype, name):
    array = change_array(marian, lambda values: values.astype(dtype))
    assert refused(marian).endswith(
        f"got {name} for '{array}'; use the original model, or dequantize it and save it in "
        "float32."
    )


def test_int8_of_marian_is_refused(tmp_path):
    path = write_file(tmp_path)
    arrays = dict(np.load(path))
    arrays["encoder_l1_ffn_W1"] = arrays["encoder_l1_ffn_W1"].astype("int8")
    np.savez(path, **arrays)
    message = refused(path, vocab=[tmp_path / "source.spm"])
    assert "got int8 for 'encoder_l1_ffn_W1'" in message


def test_quantization_config_is_refused(marian):
    change_json(marian / "config.json", quantization_config={"load_in_8bit": True})
    assert "got a quantization_config in" in refused(marian)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_weights_are_refused(marian, value):
    def spoil(values):
        values[1, 2:5] = value
        return values

    array = change_array(marian, spoil)
    assert f"got 3 NaN or infinite numbers in '{array}'" in refused(marian)


def test_wrong_activation_has_no_hint(marian, tmp_path):
    """Another activation than the model's gives wrong translations."""
    change_json(marian / "config.json", activation_function="gelu_new")
    assert refused(marian).endswith("'relu', 'gelu', 'swish' or 'silu', got 'gelu_new'")
    path = write_file(tmp_path, **{"transformer-ffn-activation": "gelu"})
    assert refused(path, vocab=[tmp_path / "source.spm"]).endswith("'relu' or 'swish', got 'gelu'")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("model.gguf", "weights for llama.cpp; pass the folder of the model that"),
        ("model.pt", "a checkpoint of PyTorch; convert it"),
        ("pytorch_model.bin", "one file of a model; pass the folder with config.json"),
        ("model.safetensors", "one file of a model; pass the folder with config.json"),
        ("translate.onnx", "an exported file; pass the folder of the model that"),
        ("opus.zip", "an archive; unpack it, and pass the folder, or the .npz file in it"),
        ("notes.txt", "a file of another type; pass a folder"),
        ("", "which does not exist; check the path"),
    ],
)
def test_file_types_are_named(tmp_path, name, problem):
    path = tmp_path / (name or "missing")
    if name:
        path.write_bytes(b"bytes")
    assert f"got {path}, {problem}" in refused(path)
    done = CliRunner().invoke(main.app, ["import", str(path), "--out", str(tmp_path / "out")])
    assert f"got {path}, {problem}" in str(done.exception)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (["config.json", "model.bin"], "{folder}/model.bin does not load: it breaks off at byte"),
        (["adapter_config.json"], "an adapter; merge it into its base model"),
        (["model.npz"], "files of Marian; pass {folder}/model.npz and its SentencePiece models"),
        (["snapshots/12ab/config.json"], "a folder of the hub's cache; pass {folder}/snapshots/12"),
        (["config.json", "model.safetensors", "source.model"], "a bundle of this library, which"),
        ([], ""),
    ],
)
def test_folder_types_are_named(tmp_path, files, problem):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert problem.format(folder=tmp_path) in refused(tmp_path)


def test_git_lfs_pointers_are_named(marian):
    (marian / "source.spm").write_text("version https://git-lfs.github.com/spec/v1\nsize 9\n")
    assert f"got pointers of Git LFS: {marian / 'source.spm'}; run `git lfs pull`" in refused(
        marian
    )


def test_other_start_token_is_refused(marian):
    change_json(marian / "generation_config.json", decoder_start_token_id=0, eos_token_id=[0])
    pad = json.loads((marian / "config.json").read_text())["pad_token_id"]
    assert f"got decoder_start_token_id 0 instead of {pad};" in refused(marian)
    change_json(marian / "generation_config.json", decoder_start_token_id=pad)
    import_model(marian)


def test_settings_with_effect_are_named():
    config = {"num_beams": 4, "length_penalty": 1.0, "eos_token_id": 0}
    generation = {
        "renormalize_logits": True,
        "forced_eos_token_id": 0,
        "early_stopping": False,
        "suppress_tokens": [5],
        "repetition_penalty": 1.2,
        "sequence_bias": {"3": -1.0},
    }
    settings, notes = convert_search_settings(config, generation, 512, [])
    assert settings == {"beam_size": 4}
    assert {note.split()[0] for note in notes} == {*generation, "length_penalty"}
    neutral = {"renormalize_logits": False, "suppress_tokens": [], "early_stopping": True}
    assert convert_search_settings({"num_beams": 1}, neutral, 512, []) == ({"beam_size": 1}, ())


@pytest.mark.parametrize(
    ("leading_tokens", "values", "lengths"),
    [
        (1, {"max_length": 20, "min_length": 5}, {"max_length": 19, "min_length": 5}),
        (2, {"max_length": 20, "min_length": 5}, {"max_length": 18, "min_length": 4}),
        (1, {"max_new_tokens": 20, "min_new_tokens": 5}, {"max_length": 20, "min_length": 6}),
        (2, {"max_length": 9, "max_new_tokens": 20}, {"max_length": 19}),
        (1, {"min_length": 1}, {}),
        (1, {"max_length": 20, "min_length": 30}, {"max_length": 19, "min_length": 19}),
        (1, {"max_length": True, "min_new_tokens": [7]}, {}),
    ],
)
def test_lengths_are_converted(leading_tokens, values, lengths):
    settings, notes = convert_search_settings(values, {}, 512, [], leading_tokens)
    assert (settings, notes) == (lengths, ())


def test_long_values_are_cut_in_notes():
    _, notes = convert_search_settings({"suppress_tokens": [7] * 10**6}, {}, 512, [])
    assert [len(note) for note in notes] == [len("suppress_tokens  is not imported") + 81]


WRONG = [["marian"], {"a": ["b"]}, 10**30, 1.5, None, "x", True, [[1]]]


@pytest.mark.parametrize(
    ("file", "keys"),
    [
        ("config.json", ["model_type", "vocab_size", "decoder_start_token_id", "num_beams"]),
        ("generation_config.json", ["max_length", "eos_token_id", "bad_words_ids"]),
        ("tokenizer_config.json", ["added_tokens_decoder", "source_lang", "separate_vocabs"]),
        ("vocab.json", ["</s>", "<unk>"]),
    ],
)
def test_wrong_types_are_one_line(marian, file, keys):
    """A value of another type is refused in one line, or has no effect."""
    path = marian / file
    original = path.read_text() if path.exists() else "{}"
    for key in keys:
        for value in WRONG:
            path.write_text(json.dumps({**json.loads(original), key: value}))
            try:
                import_model(marian)
            except ValueError as error:
                assert len(str(error)) < 500
                assert "\n" not in str(error)


@pytest.mark.parametrize("value", WRONG, ids=str)
def test_model_type_must_be_a_name(marian, value):
    change_json(marian / "config.json", model_type=value)
    assert "folder: expected a model_type of marian, m2m_100, mbart in " in refused(marian)


@pytest.mark.parametrize("value", [["x"], {"a": 1}, "x", None], ids=str)
def test_language_ids_must_be_integers(tmp_path, value):
    folder = write_nllb(tmp_path / "nllb", encoder_layers=1, decoder_layers=1)
    tokens = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    tokens[4]["id"] = value
    change_json(folder / "tokenizer.json", added_tokens=tokens)
    assert "expected the languages' tokens as special added_tokens in" in refused(folder, **NLLB)


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "source.spm", "README.md"])
def test_large_files_are_not_read(marian, name):
    with (marian / name).open("ab") as file:
        file.truncate(3 * 2**30)
    assert f"{name}: expected a file of at most " in refused(marian)


def test_added_tokens_are_named(marian):
    change_json(marian / "added_tokens.json", **{"<brand>": 200, "</s>": 0})
    notes = import_model(marian).origin["notes"]
    assert "added tokens are not imported, and are text here: <brand>" in notes


def test_languages_are_no_bad_words(m2m100):
    """They are never predicted here, as a folder that this library exported asks for."""
    first = len(json.loads((m2m100 / "vocab.json").read_text()))
    rows = [1, *range(first, first + 8)]
    change_json(m2m100 / "generation_config.json", bad_words_ids=[[row] for row in rows])
    notes = import_model(m2m100, **M2M100).origin["notes"]
    assert not re.search("bad_words_ids", " ".join(notes))
