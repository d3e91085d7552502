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
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# CTranslate2's own test model: Arabic to Latin letters, character by character.
AREN = Path(__file__).parents[3] / "shared" / "data" / "aren-transliteration"
FOLDER = AREN / "v2" / "aren-transliteration"
needs_aren = pytest.mark.skipif(not AREN.is_dir(), reason=f"needs {AREN}")
WORD = "آتزمون"
# Of tests/translator_test.cc of CTranslate2: settings, and the tokens or the number of them.
EXPECTATIONS = [
    ({"beam_size": 1}, "atzmon"),
    ({"beam_size": 2}, "atzmon"),
    ({"beam_size": 1, "max_length": 3}, 3),
    ({"beam_size": 4, "max_length": 3}, 3),
    ({"beam_size": 1, "min_length": 9}, 8),
    ({"beam_size": 4, "min_length": 9}, 8),
]


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
@pytest.mark.parametrize(("settings", "expected"), EXPECTATIONS)
def test_expectations_of_ctranslate2(translator, settings, expected):
    (result,) = translator.translate([WORD], **settings)
    assert (result.text if isinstance(expected, str) else len(result.text)) == expected


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
