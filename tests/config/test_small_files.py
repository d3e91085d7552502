"""Small files that are read whole, from unknown sources."""

import shutil
from pathlib import Path

import pytest

from tfk_transformer.config.small_files import read_small_file, read_small_text
from tfk_transformer.data.labels import Labels
from tfk_transformer.export.inspection import inspect
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.glossary import Glossary
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.recipe import Recipe

SAVED = Path(__file__).parents[1] / "saved_files" / "bundle"
SIZE = 3 * 2**30  # bytes; the files are sparse


def enlarged(path):
    with path.open("ab") as file:
        file.truncate(SIZE)
    return path


def test_largest_file_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"1234567")
    assert read_small_file(path, max_bytes=7) == b"1234567"
    with pytest.raises(ValueError, match="file: expected a file of at most 6 bytes, got 7 bytes;"):
        read_small_file(path, max_bytes=6)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero")
def test_endless_file_is_refused():
    with pytest.raises(ValueError, match="^/dev/zero: expected a file of at most 5 bytes, got 6 "):
        read_small_file("/dev/zero", max_bytes=5)


def test_text_is_read_as_utf_8(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("\ufeffä\r\nb\rc\n".encode())
    assert read_small_text(path) == "ä\nb\nc\n"
    path.write_bytes(b"ab\xe4")
    with pytest.raises(ValueError, match="text: expected UTF-8, got byte 0xe4 at 2.$"):
        read_small_text(path)
    assert read_small_text(path, errors="replace") == "ab\ufffd"


@pytest.mark.parametrize(
    "read",
    [Glossary.read, Labels.load, Recipe.read, SubwordTokenizer.load],
    ids=["glossary", "labels", "recipe", "tokenizer"],
)
def test_readers_refuse_large_files(tmp_path, read):
    with pytest.raises(ValueError, match=f"expected a file of at most .*, got {SIZE:,} bytes;"):
        read(enlarged(tmp_path / "file"))


@pytest.mark.parametrize("name", ["config.json", "metrics.json", "probes.txt", "source.model"])
@pytest.mark.parametrize("read", [Translator.load, inspect], ids=["load", "inspect"])
def test_bundle_refuses_large_files(tmp_path, name, read):
    bundle = shutil.copytree(SAVED, tmp_path / "bundle")
    enlarged(bundle / name)
    with pytest.raises(ValueError, match=rf"{name}: expected a file of at most .*, got {SIZE:,} "):
        read(bundle)
