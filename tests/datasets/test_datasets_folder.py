import gzip
import re
from pathlib import Path

import pytest

from tfk_transformer.datasets import Report, load

MULTI30K = Path(__file__).parents[3] / "shared" / "data" / "multi30k"


@pytest.fixture
def folder(tmp_path):
    def write(**contents: str):
        for name, content in contents.items():
            (tmp_path / name.replace("__", ".")).write_text(content)
        return tmp_path

    return write


def test_usual_splits_come_first(folder):
    files = {
        f"{language}__{split}__txt": "x\n"
        for language in ("de", "en")
        for split in ("validation", "dev", "train", "extra")
    }
    source = load(f"folder:{folder(**files)}:de-en")
    assert source.splits == ("train", "validation", "dev", "extra")
    assert (source.source_language, source.target_language) == ("de", "en")


def test_pairs_in_either_direction(folder):
    path = folder(de__train__txt="eins\nzwei\n", en__train__txt="one\ntwo\n")
    assert list(load(f"folder:{path}:de-en").pairs("train")) == [
        ("eins", "one", "de.train.txt:1"),
        ("zwei", "two", "de.train.txt:2"),
    ]
    assert list(load(f"folder:{path}:en-de").pairs("train")) == [
        ("one", "eins", "en.train.txt:1"),
        ("two", "zwei", "en.train.txt:2"),
    ]


def test_gzip_beside_plain_text(folder):
    path = folder(en__test__txt="five\n")
    (path / "de.test.txt.gz").write_bytes(gzip.compress("fünf\n".encode()))
    assert list(load(f"folder:{path}:de-en").pairs("test")) == [
        ("fünf", "five", "de.test.txt.gz:1")
    ]


def test_folder_name_may_have_colons(tmp_path):
    path = tmp_path / "a:b"
    path.mkdir()
    (path / "de.train.txt").write_text("eins\n")
    (path / "en.train.txt").write_text("one\n")
    assert next(load(f"folder:{path}:de-en").pairs("train")).target == "one"


def test_other_files_are_ignored(folder):
    path = folder(
        de__train__txt="eins\n",
        en__train__txt="one\n",
        fr__test__txt="un\n",
        README__txt="x",
        de__train__bak="x",
        de__a__b__txt="x",
    )
    assert load(f"folder:{path}:de-en").splits == ("train",)


def test_empty_sides_name_their_file(folder):
    path, report = (
        folder(de__train__txt="\nzwei\ndrei\n", en__train__txt="one\n\nthree\n"),
        Report(),
    )
    assert [pair.target for pair in load(f"folder:{path}:de-en").pairs("train", report)] == [
        "three"
    ]
    assert report.lines() == ["dropped 2 pairs with an empty side (de.train.txt:1, en.train.txt:2)"]


def test_half_split_fails_when_used(folder):
    path = folder(de__train__txt="eins\n", en__train__txt="one\n", de__dev__txt="zwei\n")
    source = load(f"folder:{path}:de-en")
    assert source.splits == ("train", "dev")
    with pytest.raises(
        ValueError,
        match=(
            rf"^expected two parallel text files, got: {re.escape(str(path))}/en\.dev\.txt: not "
            r"found\.$"
        ),
    ):
        source.pairs("dev")


def test_language_needs_files(folder):
    path = folder(de__train__txt="eins\n", en__train__txt="one\n")
    with pytest.raises(
        ValueError,
        match=(
            r"expected files such as fr\.train\.txt or fr\.train\.txt\.gz, found none for fr; "
            r"languages there: de, en\.$"
        ),
    ):
        load(f"folder:{path}:de-fr")


def test_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"found none for de and en; languages there: none\.$"):
        load(f"folder:{tmp_path}:de-en")


def test_missing_folder_is_refused(tmp_path):
    with pytest.raises(
        ValueError,
        match=(
            rf"^folder {re.escape(str(tmp_path))}/none: not found; name a folder with files "
            r"such as de\.train\.txt\.$"
        ),
    ):
        load(f"folder:{tmp_path}/none:de-en")


def test_file_is_not_a_folder(folder):
    path = folder(de__train__txt="eins\n")
    with pytest.raises(ValueError, match=r"de\.train\.txt: not a folder; name a folder"):
        load(f"folder:{path}/de.train.txt:de-en")


def test_plain_and_gzip_conflict(folder):
    path = folder(de__train__txt="eins\n", en__train__txt="one\n")
    (path / "de.train.txt.gz").write_bytes(gzip.compress(b"zwei\n"))
    with pytest.raises(
        ValueError,
        match=r"both de\.train\.txt and de\.train\.txt\.gz are there; keep one of them\.$",
    ):
        load(f"folder:{path}:de-en")


@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"needs {MULTI30K}")
def test_multi30k_has_its_pairs():
    source, report = load(f"folder:{MULTI30K}:de-en"), Report()
    assert source.splits == ("train", "validation", "test")
    assert sum(1 for _ in source.pairs("train", report)) == 29_000
    assert next(source.pairs("train")) == (
        "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
        "Two young, White males are outside near many bushes.",
        "de.train.txt:1",
    )
    assert report.dropped == 0
