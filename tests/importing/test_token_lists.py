"""Models without SentencePiece models: lists of tokens with a rule, and texts whose tokens the
vocabulary lacks.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.importing.checking.comparison import compare_with_library
from tfk_transformer.importing.ctranslate2_folder.binary_file import open_binary
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.importing.token_lists import token_list_model
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# CTranslate2's own test model: Arabic to Latin letters, character by character.
AREN = Path(__file__).parents[3] / "shared" / "data" / "aren-transliteration"
FOLDER = AREN / "v2" / "aren-transliteration"
needs_aren = pytest.mark.skipif(not AREN.is_dir(), reason=f"needs {AREN}")
WORD = "آتزمون"
# Of CTranslate2's tests/translator_test.cc: source, settings, and the translation.
TRANSLATIONS = [
    *((WORD, {"beam_size": size}, "atzmon") for size in (1, 2, 4, 22)),
    *(("آزا", {"beam_size": size}, "azza") for size in (1, 2, 4)),
    *((WORD, {"beam_size": size, "prefixes": ["ats"]}, "atsumon") for size in (1, 2, 4)),
    (WORD, {"prefixes": ["atzo"]}, "atzomon"),
    ("أوليسس", {"beam_size": 5, "prefixes": ["ulise"]}, "ulises"),
]
LENGTHS = [
    (setting, {"beam_size": size}, length)
    for size in (1, 4)
    for setting, length in [({"max_length": 3}, 3), ({"min_length": 9}, 8)]
]
SCORES = {
    (WORD, "atzmon"): [-0.106023, -0.065410, -0.056002, -0.447953, -0.230714, -0.092184, -0.063463],
    ("آتشيسون", "achison"): [
        *(-0.072660, -0.300309, -0.181187, -0.395671),
        *(-0.025631, -0.123466, -0.002034, -0.012639),
    ],
    ("آرباكه", "arbake"): [
        *(-0.103136, -0.089504, -0.063889, -0.007327, -0.452072, -0.060154, -0.016636),
    ],
    ("آرثر", "arther"): [
        *(-0.076704, -0.036037, -0.029253, -0.030273, -0.149276, -0.002440, -0.003742),
    ],
}


@needs_aren
@pytest.mark.parametrize("name", ["aren-transliteration", "aren-transliteration-i16"])
def test_first_version_equals_the_second(name):
    first, second = (open_binary(AREN / version / name / "model.bin") for version in ("v1", "v2"))
    assert first.shapes == second.shapes
    for array in first.shapes:
        np.testing.assert_array_equal(first.read(array), second.read(array), err_msg=array)


@pytest.fixture(scope="module")
def translator():
    return import_model(FOLDER, tokens="characters")


@needs_aren
@pytest.mark.parametrize(("source", "settings", "expected"), TRANSLATIONS)
def test_translations_are_those_that_ctranslate2_expects(translator, source, settings, expected):
    assert translator.translate([source], **settings)[0].text == expected


@needs_aren
@pytest.mark.parametrize(("setting", "beam", "expected"), LENGTHS)
def test_lengths_are_those_that_ctranslate2_expects(translator, setting, beam, expected):
    assert len(translator.translate([WORD], **setting, **beam)[0].text) == expected


@needs_aren
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_scores_are_those_that_ctranslate2_expects(version):
    translator = import_model(AREN / version / "aren-transliteration", tokens="characters")
    for target, expected in zip(
        translator.score_tokens(*zip(*SCORES, strict=True)), SCORES.values(), strict=True
    ):
        np.testing.assert_allclose(target.token_log_probs, expected, atol=1e-5)


@needs_aren
@pytest.mark.long  # searches in two libraries
def test_translations_and_scores_equal_ctranslate2(translator):
    ctranslate2 = pytest.importorskip("ctranslate2")
    letters = (FOLDER / "source_vocabulary.txt").read_text(encoding="utf-8").split()[3:]
    random = np.random.default_rng(0)
    words = ["".join(random.choice(letters, random.integers(1, 12))) for _ in range(500)]
    engine = ctranslate2.Translator(str(FOLDER), compute_type="float32", intra_threads=1)
    theirs = engine.translate_batch([list(word) for word in words], return_scores=True)
    ours = translator.translate(words)
    assert [each.text for each in ours] == ["".join(each.hypotheses[0]) for each in theirs]
    np.testing.assert_allclose(
        [each.score for each in ours], [each.scores[0] for each in theirs], atol=2e-5
    )


@needs_aren
def test_check_splits_texts_by_the_rule(translator):
    pytest.importorskip("ctranslate2")
    values = compare_with_library(FOLDER, translator)
    assert values["agrees"] is True, values
    assert values["unknown_tokens"] == 0


@needs_aren
def test_unfitting_tokenizer_is_refused(tmp_path):
    """Its mark of the start of a word is not in the vocabulary, and silently became unknown."""
    paths = []
    for side in ("source", "target"):
        vocabulary = FOLDER / f"{side}_vocabulary.txt"
        letters = vocabulary.read_text(encoding="utf-8").split()[3:]
        paths.append(tmp_path / f"{side}.model")
        SubwordTokenizer.train(["".join(letters)], 60, "char").save(paths[-1])
    with pytest.raises(ValueError, match="unknown token '▁' at the start of each of") as error:
        import_model(FOLDER, vocab=paths)
    assert "tokens" in str(error.value)


@needs_aren
def test_unknown_letters_are_noted():
    translator = import_model(FOLDER, tokens="characters", probes=[WORD, f"{WORD}Q"])
    assert translator.origin["notes"] == [
        f"1 of 13 tokens of 2 sample texts are unknown to the model, first 'Q' in '{WORD}Q'"
    ]


@needs_aren
def test_rule_with_which_every_probe_begins_unknown_is_refused():
    with pytest.raises(ValueError, match="at the start of each of 2 sample texts"):
        import_model(FOLDER, tokens="words", probes=[WORD, WORD[:3]])


@needs_aren
def test_folder_without_a_rule_names_it():
    with pytest.raises(ValueError, match="pass the rule of the vocabulary's tokens"):
        import_model(FOLDER)


@needs_aren
@pytest.mark.long  # imports, and searches twice
def test_command_imports_and_checks(tmp_path):
    arguments = ["import", FOLDER, "--tokens", "characters", "-o", tmp_path / "aren", "--json"]
    done = CliRunner().invoke(main.app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["tokens"] == "characters"


def test_rule_is_refused_for_other_models(tmp_path):
    with pytest.raises(ValueError, match="tokens: expected none for"):
        import_model(tmp_path, tokens="characters")


@needs_aren
@pytest.mark.parametrize("rule", ["[a-z]{2}", r"\d"])
def test_rule_that_does_not_give_the_tokens_is_refused(rule):
    with pytest.raises(ValueError, match="which gives 0 of them"):
        import_model(FOLDER, tokens=rule)


@needs_aren
def test_longest_tokens_are_a_rule():
    translator = import_model(FOLDER, tokens="longest")
    assert (
        translator.source_tokenizer.encode([WORD])[0]
        == import_model(FOLDER, tokens="characters").source_tokenizer.encode([WORD])[0]
    )


def test_word_mark_of_characters_is_a_blank():
    model, pieces = token_list_model(["<s>", "▁", "a", "b"], "characters", ["<s>"])
    assert pieces == ["<s>", "▁", "a", "b"]
    assert [piece.piece for piece in model.pieces][4:] == ["▁", "a", "b"]


def test_options_without_a_layout_are_refused(tmp_path):
    with pytest.raises(ValueError, match="layout: expected the layout of a PyTorch module"):
        import_model(tmp_path, options={"num_heads": 8})
