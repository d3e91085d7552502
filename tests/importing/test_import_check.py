"""The check of an import against the library that a model is from, and the license's warning."""

import json

import pytest
import safetensors.numpy
import t5_folder
from marian_folder import TAGS, write_folder
from multilingual_folder import write_m2m100
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.export.exporting import export
from tfk_transformer.importing.checking import comparison, reference_program
from tfk_transformer.importing.checking.comparison import compare_with_library
from tfk_transformer.importing.checking.description import read_examples
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.pipelines.licenses import LicenseWarning, license_warning

pytestmark = pytest.mark.filterwarnings("default")  # of the libraries
LAYERS = {"encoder_layers": 1, "decoder_layers": 1}
SHORT = {"max_length": 12, "forced_eos_token_id": None}  # the tests' weights seldom end
CARD = """---
license: cc-by-nc-4.0
widget:
- text: "kalo miru te"
  example_title: Words
- text: sona ßu
language: de
---
```python
from transformers import MarianMTModel

name = "Helsinki-NLP/opus mt"
src_text = ["karute so na", "mi"]
text = 'lomi " ka'
```
"""


def write_marian(folder, **changes):
    write_folder(folder, tags=TAGS, **LAYERS, **SHORT, **changes)
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    return folder


def imported(*arguments):
    return CliRunner().invoke(main.app, ["import", *map(str, arguments)])


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    return write_marian(tmp_path_factory.mktemp("check") / "opus")


def test_card_examples_are_read(marian):
    assert read_examples(marian) == ["kalo miru te", "sona ßu", "karute so na", 'lomi " ka']


@pytest.mark.parametrize(
    "card",
    ["", "---\nwidget: []\n---\n", "```python\ntext = (\n```\n", "```python\ntext = 'word'\n```\n"],
)
def test_cards_without_examples(card, tmp_path):
    (tmp_path / "README.md").write_text(card)
    assert read_examples(tmp_path) == []


@pytest.fixture
def in_this_process(monkeypatch):
    """Run transformers here: another process would import it, and torch, again."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    torch.set_num_threads(1)  # its threads wait actively, which takes ten times as long
    monkeypatch.setattr(
        comparison, "_run", lambda request: (reference_program._transformers(request), None)
    )


@pytest.mark.long  # a search, and a process that imports two libraries
def test_check_compares_with_transformers(marian, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # its threads wait actively
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    done = imported(marian, "--out", tmp_path / "bundle", "--check")
    assert done.exit_code == 0, done.output
    assert 'example from the README.md: "kalo miru te" → "' in done.output
    assert "the same tokens for 5 of 5 texts, the same translations for 5 of 5" in done.output


def test_difference_fails_the_check(marian, tmp_path, in_this_process):
    """A language token inside of a text is a token here, and pieces in the family."""
    (tmp_path / "probes.txt").write_text("ka >>fra<< mi\n")
    options = ("--probes", tmp_path / "probes.txt", "--check", "--json")
    done = imported(marian, "--out", tmp_path / "bundle", *options)
    assert done.exit_code == 1
    assert (tmp_path / "bundle").is_dir()
    assert "warning: the imported model differs from transformers" in done.stderr
    values = json.loads(done.stdout)["comparison"]
    assert values["equal_tokens"] == 4
    assert values["equal_translations"] >= 4
    assert values["first_difference"]["source"] == "ka >>fra<< mi"


@pytest.mark.long  # a search
def test_other_weights_are_noticed(tmp_path, in_this_process):
    folder = write_folder(tmp_path / "opus", **LAYERS, **SHORT)
    translator = import_model(folder)
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    arrays["model.shared.weight"] *= -1
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")
    values = compare_with_library(folder, translator)
    assert values["agrees"] is False
    assert values["equal_tokens"] == values["texts"] == 5


@pytest.mark.long  # a search
def test_check_passes_a_text_prefix(tmp_path, in_this_process):
    folder = t5_folder.write_folder(tmp_path / "t5", **t5_folder.CASES["t5"], max_length=12)
    values = compare_with_library(folder, import_model(folder, source_text_prefix="kalo: "))
    assert values["agrees"], values


@pytest.mark.long  # a search
def test_check_passes_the_languages(tmp_path, in_this_process):
    """Random weights sometimes prefer tokens of languages, which this library never predicts."""
    folder = write_m2m100(tmp_path / "folder", **LAYERS)
    translator = import_model(folder, source_language="de", target_language="en")
    values = compare_with_library(folder, translator)
    assert values["equal_tokens"] == values["texts"] == 5
    assert values["equal_translations"] >= 3


@pytest.mark.parametrize(
    ("name", "forbids"),
    [
        ("cc-by-nc-4.0", True),
        ("CC-BY-NC-SA-3.0", True),
        ("other-noncommercial", True),
        ("cc-by-4.0", False),
        ("apache-2.0", False),
        ("ncsa", False),
        (None, False),
    ],
)
def test_licenses_that_forbid_business(name, forbids):
    assert bool(license_warning({"name": "nllb", "license": name})) is forbids


def test_license_is_warned_of_once(marian, tmp_path):
    """By import, inspect and export, in the command line as one line."""
    done = imported(marian, "--out", tmp_path / "bundle")
    line = "warning: the license of opus, cc-by-nc-4.0, forbids commercial use. It also applies to"
    assert done.stderr.count(line) == 1
    inspected = CliRunner().invoke(main.app, ["inspect", str(tmp_path / "bundle")])
    assert inspected.stderr.count(line) == 1
    with pytest.warns(LicenseWarning, match="forbids commercial use"):
        translator = import_model(marian)
    with pytest.warns(LicenseWarning), pytest.raises(ValueError, match="exists"):
        export(translator, tmp_path)
