"""Models that are refused, since an import would translate wrongly, and settings that are noted."""

import json
import pickle
import re
import zipfile

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from marian_folder import write_folder
from marian_npz_folder import write_file
from multilingual_folder import write_m2m100, write_nllb
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.constants import END_ID
from tfk_transformer.importing.hugging_face.search_notes import (
    convert_search_settings,
    generation_settings,
)
from tfk_transformer.importing.model_import import FAMILIES, import_model
from tfk_transformer.importing.model_paths import model_type_problem

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


def added_tokens(folder, **languages):
    """The tokens that an imported model adds to a source and a target."""
    config = import_model(folder, **languages).model.config
    return config.source_prefix, config.source_suffix, config.target_prefix


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("tokenizer_config.json", {"tokenizer_class": "SMALL100Tokenizer"}),
        ("tokenizer_config.json", {"name_or_path": "alirezamsh/small100"}),
        ("config.json", {"_name_or_path": "/models/SMaLL-100"}),
        ("tokenization_small100.py", {}),
    ],
)
def test_small_hundred_is_recognized(m2m100, file, changes):
    ((source,), _, (end,)) = added_tokens(m2m100, **M2M100)
    change_json(m2m100 / file, **changes)
    (prefix, suffix, started) = added_tokens(m2m100, target_language="de")
    assert (prefix, suffix, started, end) == ((source,), (), (), END_ID)
    assert "target_language: expected one of" in refused(m2m100, source_language="de")


def test_cached_small_hundred_is_recognized(m2m100, tmp_path):
    """The hub's cache names a folder by its commit."""
    folder = tmp_path / "models--alirezamsh--small100" / "snapshots" / "12ab"
    folder.parent.mkdir(parents=True)
    m2m100.rename(folder)
    assert import_model(folder, **M2M100).origin["family"] == "SMaLL-100"


def test_other_tokenizer_class_is_refused(m2m100):
    change_json(m2m100 / "tokenizer_config.json", tokenizer_class="LlamaTokenizer")
    assert "SMALL100Tokenizer or NllbTokenizer in" in refused(m2m100, **M2M100)


def test_legacy_languages_follow_the_text(tmp_path):
    folder = write_nllb(tmp_path / "nllb", encoder_layers=1, decoder_layers=1)
    prefix, suffix, started = added_tokens(folder, **NLLB)
    change_json(folder / "tokenizer_config.json", legacy_behaviour=True)
    assert added_tokens(folder, **NLLB) == (suffix, prefix, started)
    assert prefix != suffix


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
    change_json(marian / "config.json", activation_function="mish")
    assert refused(marian).endswith("'gelu_fast' or 'quick_gelu', got 'mish'")
    path = write_file(tmp_path, **{"transformer-ffn-activation": "tanh"})
    assert refused(path, vocab=[tmp_path / "source.spm"]).endswith(
        "'relu', 'swish' or 'gelu', got 'tanh'"
    )


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("model.gguf", "weights for llama.cpp; pass the folder of the model that"),
        ("model.pt", "a checkpoint of PyTorch; if it is of your own"),
        ("pytorch_model.bin", "one file of a model; pass the folder with config.json"),
        ("model.safetensors", "one file of a model; pass the folder with config.json"),
        ("translate.onnx", "an exported file; pass the folder of the model that"),
        ("opus.zip", "an archive; unpack it, and pass the folder, or the .npz file in it"),
        ("opus.yml", "settings or a vocabulary of Marian; pass the .npz file of its model"),
        ("model.ckpt.index", "a checkpoint of TensorFlow; convert it with transformers' script"),
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
        (["model.npz"], "vocab: expected one SentencePiece model (*.spm) in {folder}, or one for"),
        (["snapshots/12ab/config.json"], "a folder of the hub's cache; pass {folder}/snapshots/12"),
        (["config.json", "model.safetensors", "source.model"], "a bundle of this library, which"),
        (["target.encoder.norm/.zarray"], "a checkpoint of T5X; convert it with"),
        (["checkpoint_best.pt"], "a folder with {folder}/checkpoint_best.pt, a checkpoint of Py"),
        (["model.ckpt-9.index"], "a checkpoint of TensorFlow; convert it with"),
        ([], ""),
    ],
)
def test_folder_types_are_named(tmp_path, files, problem):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert problem.format(folder=tmp_path) in refused(tmp_path)


@pytest.mark.parametrize(
    ("values", "converter"),
    [
        ({"args": None, "cfg": {}, "optimizer_history": []}, "ct2-fairseq-converter --model_path"),
        ({"generator": {}, "opt": {"src_vocab": "v"}}, "ct2-opennmt-py-converter --model_path"),
        ({"state_dict": {}}, "--layout torch, annotated or seq2seq"),
    ],
    ids=["fairseq", "OpenNMT-py", "other"],
)
@pytest.mark.parametrize("is_archive", [False, True], ids=["pickle", "archive"])
def test_checkpoints_name_a_converter(tmp_path, values, converter, is_archive):
    """`torch.save` writes a zip archive with a pickle since PyTorch 1.6."""
    path = tmp_path / "model.pt"
    if is_archive:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model/data.pkl", pickle.dumps(values))
    else:
        path.write_bytes(pickle.dumps(values))
    assert converter in refused(path)
    path = path.rename(tmp_path / "pytorch_model.bin")
    assert ("one file of a model" in refused(path)) == ("state_dict" in values)


def test_gguf_is_known_by_its_content(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"GGUF" + bytes(20))
    assert "got " + str(tmp_path / "model.bin") + ", weights for llama.cpp" in refused(
        tmp_path / "model.bin"
    )


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["opus.spm32k.vocab.yml"], "a release of OPUS-MT, whose ids are those of its vocab.yml"),
        ([], "a model of Marian; run unzip {path}, and pass the folder"),
    ],
)
def test_archives_of_marian_are_known(tmp_path, names, problem):
    path = tmp_path / "opus-2021-02-18.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ["opus.spm32k.npz", "source.spm", "target.spm", "decoder.yml", *names]:
            archive.writestr(name, "bytes")
    assert problem.format(path=path) in refused(path)


@pytest.mark.parametrize(
    ("model_type", "architecture", "reason"),
    [
        ("bart", "BartForConditionalGeneration", "merges bytes by the rules of GPT-2"),
        ("nllb-moe", "NllbMoeForConditionalGeneration", "layers are mixtures of experts"),
        ("bert", "BertForMaskedLM", "an encoder-only model, which writes no text; import"),
        ("xlm-roberta", "XLMRobertaModel", "an encoder-only model"),
        ("llama", "LlamaForCausalLM", "a decoder-only model; use an engine for these, such as"),
        ("gpt2", "GPT2LMHeadModel", "a decoder-only model"),
        ("whisper", "WhisperForConditionalGeneration", "a model of speech; use"),
        ("vision-encoder-decoder", "VisionEncoderDecoderModel", "a model of pictures; use"),
        ("unknown", None, "got 'unknown'."),
    ],
)
def test_unsupported_families_have_a_reason(marian, model_type, architecture, reason):
    change_json(marian / "config.json", model_type=model_type, architectures=[architecture])
    assert reason in refused(marian)


def test_encoder_decoders_have_a_reason():
    """All of transformers' for text, other than those that are imported."""
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    names = auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    imported = {*FAMILIES, "t5", "mt5", "umt5"}
    lacking = [
        name
        for name, architecture in names.items()
        if name not in imported
        and not model_type_problem({"model_type": name, "architectures": [architecture]})
    ]
    assert lacking == []


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


LENGTHS = ("min_length", "max_length")
TOKENS = {"eos_token_id": 0, "decoder_start_token_id": 7}
# What generate does with a folder that states nothing.
GENERATE = {
    "beam_size": 1,
    "length_penalty": 1.0,
    "length_penalty_form": "length",
    "early_stopping": False,
    "forced_eos": False,
    "max_length_factor": 1000.0,
}


def test_settings_with_effect_are_named():
    generation = {
        "num_beams": 4,
        "max_length": 21,
        "suppress_tokens": [5],
        "repetition_penalty": 1.2,
        "sequence_bias": {"3": -1.0},
        "num_return_sequences": 2,
        "length_penalty": -1.0,
        "forced_eos_token_id": 3,
        "early_stopping": "always",
        "no_repeat_ngram_size": -2,
        "do_sample": True,
    }
    settings, notes = convert_search_settings(TOKENS, generation, 512, [])
    assert settings == {**GENERATE, "beam_size": 4, "max_length": 20}
    assert {note.split()[0] for note in notes} == set(generation) - {"num_beams", "max_length"}


@pytest.mark.parametrize(
    ("values", "converted"),
    [
        ({"num_beams": 6, "early_stopping": True}, {"beam_size": 6, "early_stopping": True}),
        ({"early_stopping": "never", "length_penalty": 2}, {"early_stopping": "never"}),
        ({"forced_eos_token_id": 0, "renormalize_logits": True}, {"forced_eos": True}),
        ({"forced_eos_token_id": [0]}, {"forced_eos": True}),
        ({"no_repeat_ngram_size": 3}, {"no_repeat_ngram_size": 3}),
        ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
        ({"temperature": 0.7, "top_k": 9}, {}),
    ],
)
def test_settings_of_generate_are_imported(values, converted):
    settings, notes = convert_search_settings(TOKENS, {"max_length": 9, **values}, 512, [])
    more = {
        "length_penalty": float(values.get("length_penalty", 1.0)),
        "max_length": 8,
        **({"renormalize_logits": True} if "renormalize_logits" in values else {}),
    }
    assert (settings, notes) == ({**GENERATE, **more, **converted}, ())
    written = generation_settings(settings, 0, 1)
    assert convert_search_settings(TOKENS, written, 512, [])[0] == settings


def test_sampling_is_imported_with_a_note():
    values = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "max_length": 9}
    settings, (note,) = convert_search_settings(TOKENS, values, 512, [])
    assert settings == {
        **GENERATE,
        "max_length": 8,
        "temperature": 0.7,
        "top_k": 50,
        "top_p": 0.9,
    }
    assert note == "do_sample is imported, but draws other tokens: seed selects them"
    assert convert_search_settings(TOKENS, generation_settings(settings, 0, 1), 512, [])[0] == (
        settings
    )


def test_generation_config_replaces_config():
    """As in generate, which reads config.json only without generation_config.json."""
    config = {**TOKENS, "num_beams": 6, "max_length": 30, "early_stopping": True}
    settings, _ = convert_search_settings(config, {"max_length": 9}, 512, [])
    assert settings == {**GENERATE, "max_length": 8}
    settings, _ = convert_search_settings(config, {}, 512, [])
    assert settings == {**GENERATE, "beam_size": 6, "max_length": 29, "early_stopping": True}


def test_penalty_counts_a_forced_language():
    settings, _ = convert_search_settings(TOKENS, {"max_length": 9}, 512, [], leading_tokens=2)
    assert settings == {**GENERATE, "max_length": 7, "length_penalty_form": "length_with_start"}
    assert generation_settings(settings, 0, 2)["max_length"] == 9


def test_repeated_end_is_not_penalized():
    """Decoders of M2M100 and mBART start with the end token."""
    values = {"repetition_penalty": 1.3, "max_length": 9}
    tokens = {"eos_token_id": 2, "decoder_start_token_id": 2}
    settings, (note,) = convert_search_settings(tokens, values, 512, [])
    assert "repetition_penalty" not in settings
    assert note.startswith("repetition_penalty 1.3 is not imported: it would make the end token")


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
        (1, {"min_length": 900}, {"min_length": 256}),
    ],
)
def test_lengths_are_converted(leading_tokens, values, lengths):
    settings, _ = convert_search_settings(values, {}, 512, [], leading_tokens)
    assert {name: value for name, value in settings.items() if name in LENGTHS} == lengths


def test_long_values_are_cut_in_notes():
    values = {"suppress_tokens": [7] * 10**6, "max_length": 9}
    _, notes = convert_search_settings(values, {}, 512, [])
    assert [len(note) for note in notes] == [len("suppress_tokens  is not imported") + 81]


WRONG = [["marian"], {"a": ["b"]}, 10**30, 1.5, None, "x", True, [[1]]]


@pytest.mark.parametrize(
    ("file", "keys"),
    [
        ("config.json", ["model_type", "vocab_size", "decoder_start_token_id", "num_beams"]),
        ("vocab.json", ["</s>", "<unk>"]),
        # Each imports a folder 24 times.
        pytest.param(
            "generation_config.json",
            ["max_length", "eos_token_id", "bad_words_ids"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            "tokenizer_config.json",
            ["added_tokens_decoder", "source_lang", "separate_vocabs"],
            marks=pytest.mark.long,
        ),
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
    assert "folder: expected a model_type of marian, m2m_100, mbart, " in refused(marian)


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
