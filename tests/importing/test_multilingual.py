"""Imported models of M2M100, NLLB, SMaLL-100, mBART and Pegasus against a reference in NumPy
float64, their exports, and folders that do not fit.
"""

import json

import multilingual_reference as reference
import numpy as np
import pytest
import safetensors.numpy
from id_rows import padded
from marian_folder import sentences
from marian_folder import write_folder as write_marian
from multilingual_case import MultilingualCase, language_rows
from multilingual_folder import (
    D,
    write_legacy_nllb,
    write_m2m100,
    write_mbart,
    write_mbart25,
    write_nllb,
    write_pegasus,
    write_small100,
)
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.export.exporting import export
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.pipelines.translator import Translator

CASES = {
    "M2M100": (write_m2m100, {"dropped": ["▁ka", "lo"]}, ("de", "en")),
    "NLLB": (write_nllb, {"scale_embedding": False}, ("zho_Hans", "deu_Latn")),
    "NLLB, to the same language": (
        write_nllb,
        {"activation_function": "gelu"},
        ("deu_Latn", "deu_Latn"),
    ),
    "mBART-50": (write_mbart, {}, ("de_DE", "en_XX")),
    "mBART-25": (write_mbart25, {"decoder_ffn_dim": 31}, ("de_DE", "en_XX")),
    "SMaLL-100": (write_small100, {}, (None, "de")),
    "NLLB with legacy_behaviour": (write_legacy_nllb, {}, ("zho_Hans", "deu_Latn")),
    "Pegasus": (write_pegasus, {"activation_function": "gelu_new"}, (None, None)),
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    write, options, languages = CASES[request.param]
    return MultilingualCase(
        write(tmp_path_factory.mktemp("multilingual") / "folder", **options), languages
    )


def test_logits_equal_the_reference(case):
    random = np.random.default_rng(3)
    size = case.translator.source_tokenizer.vocab_size
    sources = [[*random.integers(UNKNOWN_ID, size, length), END_ID] for length in (7, 1, 12)]
    targets = [[START_ID, *random.integers(UNKNOWN_ID, size, length)] for length in (5, 13, 2)]
    logits = np.array(case.translator.model({"source": padded(sources), "target": padded(targets)}))
    for source, target, actual in zip(sources, targets, logits, strict=True):
        np.testing.assert_allclose(
            actual[: len(target)][:, ~case.never],
            case.expected(source, target)[:, ~case.never],
            atol=1e-4,
        )
        assert (actual[: len(target)][:, case.never] < -9e8).all()


# A search, as test_transformers_multilingual.py compares. All logits are compared above.
@pytest.mark.parametrize("case", ["mBART-25"], indirect=True)
@pytest.mark.long
def test_greedy_equals_the_reference(case):
    texts = sentences("source", 3, seed=9)
    actual = case.translator.translate(
        texts, beam_size=1, max_length=9, max_length_factor=1000, token_scores=True
    )
    for source, translation in zip(
        case.translator.source_tokenizer.encode(texts), actual, strict=True
    ):
        target = [START_ID]
        while len(target) <= 9 and target[-1] != END_ID:
            logits = case.expected([*source, END_ID], target)[-1]
            logits[PAD_ID] = np.nan
            target.append(int(np.nanargmax(logits)))
        assert translation.hypotheses[0].tokens == case.translator.target_tokenizer.pieces_of(
            target[1:]
        )


# Languages after a source, and none.
@pytest.mark.parametrize("case", ["mBART-25", "Pegasus"], indirect=True)
def test_scores_equal_the_reference(case):
    """Padding, the start token and the languages have no part of the probabilities. Attention goes
    to the source's own tokens.
    """
    source, target = sentences("source", 1, seed=5)[0], sentences("target", 1, seed=5)[0]
    (scored,) = case.translator.score_tokens([source], [target], attention=True)
    read = [*case.translator.source_tokenizer.encode([source])[0], END_ID]
    ids = [*case.translator.target_tokenizer.encode([target])[0], END_ID]
    logits = case.expected(read, [START_ID, *ids[:-1]])
    log_probs = logits - np.log(np.nansum(np.exp(logits), axis=1, keepdims=True))
    np.testing.assert_allclose(
        scored.token_log_probs, log_probs[np.arange(len(ids)), ids], atol=1e-4
    )
    assert scored.attention.shape == (3, 11, len(ids), len(read))
    sums = scored.attention.sum(axis=-1)
    if case.before or case.after:
        assert (sums < 1).all()
    else:
        np.testing.assert_allclose(sums, 1, atol=1e-5)


def test_sources_fill_the_positions(case):
    longest = case.translator.model.config.max_length
    added = len(case.translator.model.config.source_additions)
    assert longest == case.config["max_position_embeddings"] - added
    ids = np.full((1, longest), UNKNOWN_ID + 1, "int32")
    ids[0, -1] = END_ID
    logits = np.array(case.translator.model({"source": ids, "target": np.roll(ids, 1)}))[0]
    expected = case.expected(ids[0], np.roll(ids[0], 1))
    np.testing.assert_allclose(logits[:, ~case.never], expected[:, ~case.never], atol=1e-4)


def test_text_yields_no_special_tokens(case):
    texts = [
        "</s>",
        "<s>",
        "<pad>",
        "<unk>",
        "<mask>",
        "__de__ ka",
        "deu_Latn ka",
        "zho_Hans",
        "<s_>",
        "<row 7>",
        "de_DE",
        "<mask_1>",
        "<unk_7>",
    ]
    ids = {i for row in case.translator.source_tokenizer.encode(texts) for i in row}
    assert not ids & {PAD_ID, START_ID, END_ID}
    assert not {int(case.rows[i]) for i in ids} & case.special
    pieces = case.translator.target_tokenizer.pieces()
    assert not any(pieces[i] for i in np.flatnonzero(np.isin(case.rows, list(case.special))))


@pytest.fixture
def nllb(tmp_path):
    return write_nllb(tmp_path / "nllb")


def refused(folder, **languages):
    with pytest.raises(ValueError) as error:
        import_model(folder, **languages)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_bad_language_lists_languages(nllb, tmp_path):
    assert refused(nllb, source_language="deu") == (
        "source_language: expected one of the 3 languages of this folder of NLLB (deu_Latn, "
        "eng_Latn, zho_Hans), got 'deu'; "
        "target_language: expected one of the 3 languages of this folder of NLLB (deu_Latn, "
        "eng_Latn, zho_Hans), got nothing."
    )
    message = refused(nllb, source_language="deu_Latn", target_language="eng_Lat")
    assert message.endswith(
        "languages of this folder of NLLB (the nearest: eng_Latn, deu_Latn), got 'eng_Lat'."
    )
    assert "source" not in message
    (nllb / "tokenizer.json").write_text("{}")
    assert "expected the languages' tokens as special added_tokens in" in refused(nllb)
    marian = write_marian(tmp_path / "marian", tags=[">>fra<<"])
    assert (
        "expected none for a folder of MarianMT, whose models have one source language, got "
        "target_language 'de'"
    ) in refused(marian, target_language="de")


def test_bad_folders_are_one_line(nllb, tmp_path):
    languages = {"source_language": "deu_Latn", "target_language": "eng_Latn"}
    path, config = nllb / "model.safetensors", json.loads((nllb / "config.json").read_text())
    arrays = safetensors.numpy.load_file(path)
    changed = {
        name: array for name, array in arrays.items() if name != "model.encoder.layer_norm.bias"
    }
    safetensors.numpy.save_file(
        {
            **changed,
            "model.decoder.layernorm_embedding.bias": arrays["model.decoder.layer_norm.bias"],
        },
        path,
    )
    message = refused(nllb, **languages)
    assert "no 'model.encoder.layer_norm.bias' (22,)" in message
    assert "unexpected 'model.decoder.layernorm_embedding.bias' (22,)" in message
    table = np.concatenate([np.zeros((2, D)), reference.sinusoids(47, D)]).astype("float32")
    table[0] = [0.0] * (D // 2) + [1.0] * (D // 2)
    name = "model.encoder.embed_positions.weights"
    safetensors.numpy.save_file({**arrays, name: table}, path)
    import_model(nllb, **languages)
    safetensors.numpy.save_file({**arrays, name: table[:, ::-1].copy()}, path)
    assert f"expected the sinusoids of NLLB as '{name}'" in refused(nllb, **languages)
    (nllb / "config.json").write_text(
        json.dumps({**config, "decoder_start_token_id": 0, "tie_word_embeddings": False})
    )
    assert "tie_word_embeddings: Input should be True, got False" in refused(nllb, **languages)
    (nllb / "config.json").write_text(
        json.dumps({**config, "decoder_start_token_id": 0, "decoder_attention_heads": 2})
    )
    message = refused(nllb, **languages)
    assert (
        "decoder_attention_heads: expected 11, the value of encoder_attention_heads, got 2; "
        "decoder_start_token_id: expected 2, the value of"
    ) in message
    (nllb / "config.json").write_text(
        json.dumps({**config, "encoder_layers": 10**9, "max_position_embeddings": 10**9})
    )
    message = refused(nllb, **languages)
    assert "the configuration does not fit" in message
    assert "max_length 999,999,999" in message
    (nllb / "config.json").write_text(json.dumps(config))
    (nllb / "tokenizer.json").unlink()
    assert refused(nllb).endswith(f"{nllb} without tokenizer.json.")


def test_extra_pieces_of_m2m100_are_text(tmp_path):
    """The vocabulary has a piece that the SentencePiece model lacks."""
    folder = write_m2m100(tmp_path / "m2m100", encoder_layers=1, decoder_layers=1)
    path = folder / "vocab.json"
    pieces = json.loads(path.read_text())
    path.write_text(json.dumps({**pieces, "▁kalomi": len(pieces)}))
    translator = import_model(folder, source_language="de", target_language="en")
    tokenizer = translator.target_tokenizer
    token = tokenizer.ids_of(["▁kalomi"])
    assert tokenizer.decode([token]) == ["kalomi"]
    assert token[0] not in tokenizer.encode(["kalomi"])[0]


def test_other_mbart_tokenizer_is_refused(tmp_path):
    folder = write_mbart(tmp_path / "mbart", encoder_layers=1, decoder_layers=1)
    languages = {"source_language": "ar_AR", "target_language": "sl_SI"}
    assert import_model(folder, **languages).model.config.source_prefix == (
        language_rows(folder)["ar_AR"] + 1,
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BartTokenizer"}))
    message = "expected the tokenizer_class MBartTokenizer or MBart50Tokenizer in"
    assert message in refused(folder, **languages)
    (folder / "tokenizer_config.json").unlink()
    (folder / "config.json").write_text(
        json.dumps({**json.loads((folder / "config.json").read_text()), "normalize_before": False})
    )
    assert "normalize_before: Input should be True, got False" in refused(folder, **languages)


# Imports by the command, and converts a search to ONNX.
@pytest.mark.long
def test_import_and_export_agree(tmp_path):
    folder = write_m2m100(tmp_path / "m2m100", encoder_layers=1, decoder_layers=1)
    options = ["--source-language", "de", "--target-language", "en"]
    done = CliRunner().invoke(
        main.app, ["import", str(folder), "--out", str(tmp_path / "bundle"), *options]
    )
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[:3:2] == [
        "M2M100: m2m100, license: not stated, from de to en",
        (
            "search settings, with which the bundle translates: beam_size=5, "
            "max_length_factor=1000.0, max_length=38, length_penalty=1.0, "
            "length_penalty_form=length_with_start, early_stopping=false, forced_eos=false"
        ),
    ]
    translator = Translator.load(tmp_path / "bundle")
    assert (translator.origin["source_language"], translator.origin["target_language"]) == (
        "de",
        "en",
    )
    # The export compares steps, scores and attention, too.
    export(translator, tmp_path / "files", ["onnx"])
    texts = [*sentences("source", 20, seed=8), "__de__ ka", "unbekannt: ж", "</s> ka <pad>"]
    expected = [translation.text for translation in translator.translate(texts)]
    file = load(tmp_path / "files" / "translate.onnx")
    assert [translation.text for translation in file.translate(texts)] == expected


def test_origin_names_languages_of_old_bundles(tmp_path):
    """Bundles of earlier versions have the languages only in their origin."""
    folder = write_m2m100(tmp_path / "m2m100", encoder_layers=1, decoder_layers=1)
    import_model(folder, source_language="de", target_language="en").save(tmp_path / "bundle")
    path = tmp_path / "bundle" / "config.json"
    config = json.loads(path.read_text())
    del config["source_language"], config["target_language"]
    path.write_text(json.dumps(config))
    assert Translator.load(tmp_path / "bundle").languages == ("de", "en")
