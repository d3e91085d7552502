"""Documents that are given as files of lines: refused by name or by their first bytes."""

import gzip
from pathlib import Path

import pytest

from tfk_transformer.formats.registry import document_suffix

SMALL = Path(__file__).parents[1] / "saved_files" / "translate.onnx"


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (b"\xef\xbb\xbf\n <!DOCTYPE html>\n<p>one", ".html"),
        (b"<html lang=en>", ".html"),
        (b'<?xml version="1.0"?>\n<xliff>', ".xml"),
        (b"---\ntitle: One\ntags:\n  - two\n---\n\nthree\n", ".md"),
        (b"WEBVTT\n\n00:01.000 --> 00:02.000\none\n", ".vtt"),
        (b"1\r\n00:00:01,000 --> 00:00:02,000\r\none\r\n", ".srt"),
        (b'# A comment\n#, fuzzy\nmsgid ""\nmsgstr ""\n', ".po"),
        (b"PK\x03\x04\x14\x00", ".zip"),
        (b"%PDF-1.7\n", ".pdf"),
        # Lines of texts.
        (b"", ""),
        (b"one\ntwo\n", ""),
        (b"--- one ---\n---\n", ""),
        (b"---\none\n", ""),
        (b"---\none: two\n", ""),
        (b"# " * 2000, ""),
        (b"---\n" + b"one: two\n" * 400, ""),
        (b"1\n2\n3\n", ""),
        (b"# one\n", ""),
        (b"<b>one</b>\n", ""),
    ],
)
def test_first_bytes_name_the_format(tmp_path, content, suffix):
    (tmp_path / "in.en").write_bytes(content)
    (tmp_path / "in.en.gz").write_bytes(gzip.compress(content))
    assert document_suffix(tmp_path / "in.en") == suffix
    assert document_suffix(tmp_path / "in.en.gz") == suffix


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("a.md", ".md"),
        ("a.HTML", ".html"),
        ("a.htm.gz", ".htm"),
        ("a.csv", ".csv"),
        ("a.srt", ".srt"),
        ("a.txt", ""),
        ("a", ""),
        ("a.tsv", ""),
        ("a.jsonl.zst", ""),
    ],
)
def test_names_name_the_format(tmp_path, name, suffix):
    assert document_suffix(tmp_path / name) == suffix


def test_documents_need_translate_document(run, tmp_path):
    page = tmp_path / "a.md"
    page.write_text("one\n")
    command = f"tfk-transformer translate-document {SMALL} {page} --output FILE"
    assert run("translate", SMALL, "--input", page) == (
        1,
        "",
        f"error: --input: expected a text in each line, got {page}, a .md document; run "
        f"`{command}`, or give --as-lines to read its lines as they are.\n",
    )
    assert run("translate", SMALL, "--input", page, "--as-lines") == (0, "eins\n", "")


def test_format_is_part_of_the_command(run, tmp_path):
    page = tmp_path / "page"
    page.write_text("<html><p>one")
    error = run("translate", SMALL, "--input", page)[2]
    assert f"{page} --format html --output FILE`" in error


@pytest.mark.parametrize("field", [[], ["--field", "en"]])
def test_tables_with_commas_are_refused(run, tmp_path, field):
    (tmp_path / "a.csv").write_text("en,de\none,eins\n")
    status, out, error = run("translate", SMALL, "--input", tmp_path / "a.csv", *field)
    assert (status, out) == (1, "")
    assert "a.csv, a .csv document; run `tfk-transformer translate-document " in error
    assert "a.csv --field NAME --output FILE`, or give --as-lines " in error


def test_other_commands_refuse_documents(run, tmp_path):
    (tmp_path / "a.md").write_text("one\n")
    (tmp_path / "a.txt").write_text("one\n")
    for command, option in (("classify", "--input"), ("score", "--source"), ("score", "--target")):
        files = {"--source": tmp_path / "a.txt", "--target": tmp_path / "a.txt"}
        files = {**(files if command == "score" else {}), option: tmp_path / "a.md"}
        arguments = [word for pair in files.items() for word in pair]
        status, out, error = run(command, SMALL, *arguments)
        assert (status, out) == (1, "")
        assert error.startswith(f"error: {option}: expected a text in each line, got ")
        assert "document; write its texts to a .txt" in error
