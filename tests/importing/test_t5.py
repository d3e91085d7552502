"""The T5 family: tokens, texts before the source, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import sentencepiece
from id_rows import padded
from marian_folder import random_texts, sentences, trained
from t5_folder import CASES, SENTINELS, TRAINED, sentencepiece_model, write_folder
from t5_rows import rows_of

from tfk_transformer.constants import END_ID, START_ID
from tfk_transformer.importing.hugging_face.model_folder import read_optional_json
from tfk_transformer.importing.hugging_face.t5 import read_t5
from tfk_transformer.importing.imported import with_text_prefix
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.text.languages import Languages
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

TEXTS = 2000
PREFIX = "ka lo te "  # words of the vocabulary


def imported(folder, source=None, target=None):
    values = read_optional_json(folder / "config.json")
    return read_t5(folder, values, Languages(source, target))


def tokenizer_of(folder):
    return SubwordTokenizer(imported(folder).source_model)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    path = tmp_path_factory.mktemp("t5")
    return {name: write_folder(path / name, **CASES[name]) for name in ("t5", "flan", "byt5")}


def rewrite(folder, copy, name, **changes):
    """Copy a folder, with changes of the values of one of its JSON files."""
    shutil.copytree(folder, copy)
    values = read_optional_json(copy / name)
    values |= changes
    (copy / name).write_text(json.dumps(values))
    return copy


def test_t5_ids_equal_sentencepiece(folders):
    model = (folders["t5"] / "spiece.model").read_bytes()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts, rows = random_texts(TEXTS), rows_of(folders["t5"])
    actual = [rows[ids].tolist() for ids in tokenizer_of(folders["t5"]).encode(texts)]
    assert actual == processor.encode(texts)


def test_byt5_ids_are_bytes(folders):
    tokenizer, rows = tokenizer_of(folders["byt5"]), rows_of(folders["byt5"])
    texts = [*random_texts(TEXTS), " a  b ", "\u2581", "\u2581\u2581a"]
    ids = tokenizer.encode(texts)
    assert [(rows[row] - 3).tolist() for row in ids] == [list(text.encode()) for text in texts]
    blank = " \t\n\r\x0b\x0c"
    assert tokenizer.decode(ids) == [text.strip(blank) for text in texts]


def test_byt5_ids_agree_in_tensorflow(folders):
    pytest.importorskip("tensorflow_text")
    tokenizer, texts = tokenizer_of(folders["byt5"]), ["ka  é中🎈", "", "\u2581 x"]
    rows = [ids + [END_ID] for ids in tokenizer.encode(texts)]
    assert [
        row[: len(ids)].tolist()
        for row, ids in zip(tokenizer.graph_encode(texts).numpy(), rows, strict=True)
    ] == rows


@pytest.mark.parametrize("name", ["t5", "byt5"])
def test_prefix_ids_precede_text_ids(folders, name):
    """A prefix that is a part of the model gives the same ids as the same text, typed."""
    read = imported(folders[name])
    prefix = list(with_text_prefix(read, PREFIX).config.source_prefix)
    tokenizer, texts = SubwordTokenizer(read.source_model), random_texts(TEXTS)
    expected = [prefix + ids for ids in tokenizer.encode(texts)]
    assert tokenizer.encode([PREFIX + text for text in texts]) == expected


def test_prefix_gives_the_logits_of_typed_text(folders):
    typed = import_model(folders["flan"])
    inside = import_model(folders["flan"], source_text_prefix=PREFIX)
    assert inside.origin["source_text_prefix"] == PREFIX
    targets = padded([[START_ID, 7, 9, 30], [START_ID, 5]])
    texts = sentences("source", 2)
    logits = [
        np.array(
            each.model(
                {
                    "source": padded(
                        [[*ids, END_ID] for ids in each.source_tokenizer.encode(rows)]
                    ),
                    "target": targets,
                }
            )
        )
        for each, rows in ((inside, texts), (typed, [PREFIX + text for text in texts]))
    ]
    np.testing.assert_allclose(*logits, atol=1e-4)


def test_unusable_prefixes_are_refused(folders, tmp_path):
    read = imported(folders["t5"])
    for config, prefix, message in (
        (read.config, " ", "expected a text with tokens, got ' '"),
        (read.config.replace(source_prefix=(5,)), "ka", "puts a language before or after"),
        (read.config.replace(positions="learned"), "ka", "whose positions have no row for it"),
    ):
        with pytest.raises(ValueError, match=message):
            with_text_prefix(read._replace(config=config), prefix)
    spans = {"split_by_whitespace": False, "user_defined_symbols": ["ka \u2581lo"]}
    model = sentencepiece_model(**spans)
    folder = write_folder(tmp_path / "spans", model, **CASES["t5"])
    with pytest.raises(ValueError, match="whose pieces span words; type it before each source"):
        with_text_prefix(imported(folder), "ka")


def test_sentinels_are_tokens(folders):
    """They are the last rows of the vocabulary, the first sentinel last."""
    tokenizer, rows = tokenizer_of(folders["t5"]), rows_of(folders["t5"])
    processor = sentencepiece.SentencePieceProcessor(
        model_proto=(folders["t5"] / "spiece.model").read_bytes()
    )
    ids = tokenizer.encode([f"ka <extra_id_{i}> lo" for i in range(SENTINELS)])
    last = processor.vocab_size() + SENTINELS - 1
    ka, lo = processor.encode("ka lo")
    actual = [rows[text_ids].tolist() for text_ids in ids]
    assert actual == [[ka, last - i, lo] for i in range(SENTINELS)]


def madlad_folder(path, **changes):
    """A folder with the special tokens of MADLAD-400: the decoder starts with the unknown token,
    and the padding is <s>.
    """
    special = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    model = sentencepiece_model(user_defined_symbols=["<2de>", "<2fr>"], **special)
    return write_folder(
        path,
        model,
        **CASES["flan"],
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=0,
        **changes,
    )


def test_madlad_languages_are_prefixes(tmp_path):
    folder = madlad_folder(tmp_path / "madlad")
    read = imported(folder, "en", "de")
    tokenizer = SubwordTokenizer(read.source_model)
    assert list(read.config.source_prefix) == tokenizer.encode(["<2de>"])[0]
    assert read.languages == ("en", "de")
    assert len(read.config.source_prefix) == 1
    typed = tokenizer.encode(["<2de> ka lo"])[0]
    assert typed == [*read.config.source_prefix, *tokenizer.encode(["ka lo"])[0]]
    assert imported(folder).config.source_prefix == ()
    with pytest.raises(ValueError, match=r"target_language: expected one of the 2 languages"):
        imported(folder, target="xx")


def test_madlad_special_rows(tmp_path):
    folder = madlad_folder(tmp_path / "madlad")
    rows = rows_of(folder)
    assert rows[:4].tolist() == [1, 0, 2, 0]  # padding, start, end, unknown
    bias = imported(folder).arrays["output/bias"]
    assert bias[START_ID] < -1e8
    assert (bias[END_ID:] == 0).sum() == len(bias) - END_ID


def json_only(folder, copy):
    """A folder as transformers 5 saves it: without the SentencePiece model."""
    transformers = pytest.importorskip("transformers")
    shutil.copytree(folder, copy)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    (copy / "spiece.model").unlink()
    tokenizer.save_pretrained(copy)
    return copy


@pytest.mark.filterwarnings("default")  # of the library
def test_tokenizer_json_is_enough(folders, tmp_path):
    folder, texts = json_only(folders["t5"], tmp_path / "json"), random_texts(400)
    read, expected = imported(folder), imported(folders["t5"])
    ids = [SubwordTokenizer(model.source_model).encode(texts) for model in (read, expected)]
    assert ids[0] == ids[1]
    assert read.config == expected.config
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(read.arrays[name], array)


@pytest.mark.filterwarnings("default")
def test_other_tokenizer_json_is_refused(folders, tmp_path):
    folder = json_only(folders["t5"], tmp_path / "json")
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    pre_tokenizer = values["pre_tokenizer"]
    for changes, message in (
        (
            {"pre_tokenizer": {"type": "ByteLevel"}},
            "got the part ByteLevel; copy spiece.model",
        ),
        (
            {"pre_tokenizer": pre_tokenizer, "model": {"type": "BPE"}},
            "got no unk_token; copy spiece.model",
        ),
        ({"model": {"type": "Unigram", "unk_id": 9**9, "vocab": []}}, "got IndexError"),
    ):
        values |= changes
        path.write_text(json.dumps(values))
        with pytest.raises(ValueError, match=message):
            imported(folder)


def test_missing_tokenizer_is_named(folders, tmp_path):
    folder = rewrite(folders["t5"], tmp_path / "copy", "config.json")
    (folder / "spiece.model").unlink()
    with pytest.raises(ValueError, match=r"got .* without spiece.model"):
        imported(folder)


def test_unsupported_t5_values_are_named(folders, tmp_path):
    for i, (changes, message) in enumerate(
        [
            ({"feed_forward_proj": "gated-tanh"}, "feed_forward_proj: expected one of relu"),
            ({"is_encoder_decoder": False}, "is_encoder_decoder"),
            ({"num_layers": 4}, r"no 'encoder.block.3.layer.0.SelfAttention.q.weight'"),
        ]
    ):
        folder = rewrite(folders["t5"], tmp_path / str(i), "config.json", **changes)
        with pytest.raises(ValueError, match=message):
            imported(folder)


def test_arrays_decide_whether_output_is_tied(folders, tmp_path):
    """transformers ties the output unless the file has another table for it."""
    assert imported(folders["t5"]).config.tie_embeddings == "all"
    assert imported(folders["flan"]).config.tie_embeddings == "inputs"
    folder = rewrite(folders["flan"], tmp_path / "copy", "config.json")
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    arrays["lm_head.weight"] = arrays["shared.weight"].copy()
    arrays["encoder.embed_tokens.weight"] = arrays["shared.weight"].copy()
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")
    assert imported(folder).config.tie_embeddings == "all"


def test_scaled_output_is_in_the_norm(folders, tmp_path):
    """`scale_decoder_outputs`, of transformers 5, has precedence over `tie_word_embeddings`."""
    path = "decoder/final_norm/gamma"
    plain = imported(folders["flan"]).arrays[path]
    folder = rewrite(folders["flan"], tmp_path / "1", "config.json", scale_decoder_outputs=True)
    scaled = imported(folder).arrays[path]
    np.testing.assert_allclose(scaled, plain * len(plain) ** -0.5, rtol=1e-6)
    changes = {"tie_word_embeddings": True, "scale_decoder_outputs": False}
    folder = rewrite(folders["flan"], tmp_path / "2", "config.json", **changes)
    np.testing.assert_array_equal(imported(folder).arrays[path], plain)


def test_unscaled_umt5_is_noted(tmp_path):
    """transformers 4 divided the logits only of tied tables, and 5 divides all of this family."""
    case = {**CASES["umt5"], "tie_word_embeddings": False}
    assert imported(write_folder(tmp_path / "1", **case)).notes[-1].endswith("beams and scores")
    assert "beams" not in "".join(imported(write_folder(tmp_path / "2", **CASES["umt5"])).notes)


def test_lengths_are_stated_or_512(folders, tmp_path):
    assert imported(folders["t5"]).config.max_length == 512
    assert imported(folders["byt5"]).config.max_length == 1024
    folder = rewrite(folders["t5"], tmp_path / "1", "config.json", n_positions=700)
    assert imported(folder).config.max_length == 700
    changes = {"model_max_length": 10**30}
    folder = rewrite(folders["t5"], tmp_path / "2", "tokenizer_config.json", **changes)
    assert imported(folder).config.max_length == 512


def test_bpe_models_have_no_sentinels(tmp_path):
    """Only a model of type unigram can have tokens in texts."""
    texts = sentences("source", 400)
    model = trained("source", 60, texts, model_type="bpe", **TRAINED)
    read = imported(write_folder(tmp_path / "bpe", model, **CASES["t5"]))
    assert any("added tokens are text here: <extra_id_0>" in note for note in read.notes)
