import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfk_transformer.datasets import load
from tfk_transformer.datasets.pairs import spec_languages
from tfk_transformer.runtime_environment import install_line

FORMS = (
    "data: expected numbers:en-de, addition:2, files:SOURCE,TARGET, folder:DIR:de-en, "
    "tfds:NAME:pt-en, hf:NAME or a file such as tsv:PATH, csv:PATH, jsonl:PATH, parquet:PATH, "
    "tmx:PATH or po:PATH, got "
)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("", "'': unknown kind ''."),
        ("de.txt", "'de.txt': unknown kind 'de.txt'."),
        ("number:en-de", "'number:en-de': unknown kind 'number'. Did you mean 'numbers'?"),
        ("numbers:", "'numbers:': nothing follows 'numbers:'."),
        ("numbers", "'numbers': nothing follows 'numbers'."),
        ("numbers:en", "'numbers:en': 'en' is not two language codes joined by one hyphen."),
        (
            "numbers:en-de-fr",
            "'numbers:en-de-fr': 'en-de-fr' is not two language codes joined by one hyphen.",
        ),
        ("numbers:en-", "'numbers:en-': 'en-' is not two language codes joined by one hyphen."),
        ("numbers:de-de", "'numbers:de-de': source and target are both 'de'; name two languages."),
        ("addition:1", "'addition:1': '1' is not a number of digits from 2 to 9."),
        ("addition:12", "'addition:12': '12' is not a number of digits from 2 to 9."),
        ("files:a.txt", "'files:a.txt': expected two paths with one comma between them."),
        ("files:a.txt,", "'files:a.txt,': expected two paths with one comma between them."),
        ("files:a,b,c", "'files:a,b,c': expected two paths with one comma between them."),
        (
            "files:a.tsv, a.tsv",
            "'files:a.tsv, a.tsv': both files are a.tsv; name two, or for a table with a pair in "
            "each line, tsv:a.tsv.",
        ),
        ("tsv:", "'tsv:': nothing follows 'tsv:'."),
        ("folder:data", "'folder:data': the languages are missing after a last ':'."),
        ("folder::de-en", "'folder::de-en': the name is missing."),
        ("folder:data:", "'folder:data:': '' is not two language codes joined by one hyphen."),
        ("tfds:opus", "'tfds:opus': the languages are missing after a last ':'."),
    ],
)
def test_malformed_spec_lists_forms(spec, problem):
    with pytest.raises(ValueError, match=f"^{re.escape(FORMS + problem)}$"):
        load(spec)


def test_source_names_its_languages():
    source = load("numbers:en-de")
    assert (source.name, source.source_language, source.target_language) == (
        "numbers:en-de",
        "en",
        "de",
    )
    assert repr(source) == "NumberSource('numbers:en-de')"


def test_unknown_split_lists_splits():
    source = load("numbers:en-de")
    with pytest.raises(
        ValueError,
        match=(
            r"^split: expected one of train, validation, test, which numbers:en-de has, got "
            r"'valid'; choose one of them, or add the split to the data. Did you mean "
            r"'validation'\?$"
        ),
    ):
        source.pairs("valid")


WITHOUT_TENSORFLOW = """
import sys
for name in ("tensorflow", "tensorflow_text", "keras", "tensorflow_datasets"):
    sys.modules[name] = None
from tfk_transformer.datasets import load

print(next(load("numbers:en-de").pairs("test")).source)
print(next(load("files:xx.train.txt,yy.train.txt").pairs("train")).target)
print(next(load("folder:.:xx-yy").pairs("train")).where)
try:
    load("tfds:opus:de-en")
except ImportError as error:
    print(error)
"""


def test_sources_need_no_tensorflow(tmp_path):
    (tmp_path / "xx.train.txt").write_text("eins\n")
    (tmp_path / "yy.train.txt").write_text("one\n")
    root = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {root!r})\n{WITHOUT_TENSORFLOW}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "one hundred sixty thousand eight hundred thirty-one",
        "one",
        "xx.train.txt:1",
        f"tensorflow_datasets is not installed. Install it with: {install_line('tfds')}",
    ]


@pytest.mark.parametrize(
    ("spec", "languages"),
    [
        ("numbers:en-de", ("en", "de")),
        ("folder:multi30k:de-en", ("de", "en")),
        ("folder:C:/texts:pt_BR-en", ("pt_BR", "en")),
        ("tfds:ted_hrlr_translate/pt_to_en:1.0.0:pt-en", ("pt", "en")),
        ("tfds:wmt14_translate/de-en:de-en", ("de", "en")),
        ("folder:student.distilled:source-target", (None, None)),
        ("folder:texts:de-tgt", ("de", None)),
        ("files:texts/train.de-en.de,texts/train.de-en.en", (None, None)),
        ("addition:2", (None, None)),
        ("pairs:0123456789abcdef", (None, None)),
    ],
)
def test_specs_name_languages(spec, languages):
    assert spec_languages(spec) == languages
