"""`tfk-transformer translate-document`."""

import json

import pytest

from tfk_transformer.cli.text_commands.translate_document import DocumentFormat
from tfk_transformer.inference.document_translation import DOCUMENT_FORMATS


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes("\ufeffSeven. Nine!\r\n\r\nForty-two\r\n".encode())
    return path


def test_a_document_is_translated(run, model, text):
    status, out, error = run("translate-document", model, text, "--beam-size", 1)
    assert (status, error) == (0, "")
    parts = [
        run("translate", model, sentence, "--beam-size", 1)[1].strip()
        for sentence in ("Seven.", "Nine!", "Forty-two")
    ]
    assert out == "\ufeff{} {}\n\n{}\n".format(*parts) or out == "\ufeff{} {}\r\n\r\n{}\r\n".format(
        *parts
    )


def test_document_to_file_and_json(run, model, text, tmp_path):
    arguments = ["translate-document", model, text, "--beam-size", 1]
    assert run(*arguments, "--output", tmp_path / "out.txt") == (0, "", "")
    written = (tmp_path / "out.txt").read_bytes().decode()
    record = json.loads(run(*arguments, "--json")[1])
    assert written == "\ufeff" + record["text"] and written.count("\r\n") == 3
    assert [sentence["source"] for sentence in record["sentences"]] == [
        "Seven.",
        "Nine!",
        "Forty-two",
    ]
    for sentence in record["sentences"]:
        assert (
            record["text"][sentence["target_start"] : sentence["target_end"]] == sentence["target"]
        )


def test_format_overrides_the_suffix(run, exported, tmp_path):
    assert set(DocumentFormat) == set(DOCUMENT_FORMATS)
    model = exported / "translate.onnx"
    (tmp_path / "page").write_text("<p>seven</p>")
    (tmp_path / "page.html").write_text("<p>seven</p>")
    expected = run("translate-document", model, tmp_path / "page.html")
    assert expected == (0, "<p>sieben</p>", "")
    assert run("translate-document", model, tmp_path / "page", "--format", "html") == expected
    status, _, error = run("translate-document", model, tmp_path / "page", "--format", "pdf")
    assert status == 2 and "'pdf' is not one of" in error


def test_attention_layer_is_checked(run, exported, tmp_path):
    (tmp_path / "in.md").write_text("One *hundred* two")
    arguments = ["translate-document", exported / "translate.onnx", tmp_path / "in.md"]
    status, out, _ = run(*arguments, "--attention-layer", -1)
    assert status == 0 and out.count("*") == 2
    status, _, error = run(*arguments, "--attention-layer", 9)
    assert status == 1 and error.startswith("error: attention_layer: expected a number from ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--json", "--stream", "seven"],
            "--json: expected no --stream, which prints text; leave out one of them.",
        ),
        (
            ["--language", "de", "seven"],
            "--language: expected an option for sentences, got an option for documents; run "
            "`tfk-transformer translate-document BUNDLE FILE` with the same options.",
        ),
        (
            ["--document", "TEXT", "seven"],
            "--document: expected an option for sentences, got an option for documents; run "
            "`tfk-transformer translate-document BUNDLE TEXT` with the same options.",
        ),
        (
            ["--document", "TEXT", "--lines", "--stream"],
            "--document: expected an option for sentences, got an option for documents; run "
            "`tfk-transformer translate-document BUNDLE TEXT` with the same options.",
        ),
        (
            ["--stream", "--prefix", "", "seven"],
            "--stream: expected no --prefix, which a stream does not support; leave out one of "
            "them.",
        ),
        (
            ["--resume", "--force", "seven"],
            "--resume: expected no --force, which starts again; leave out one of them.",
        ),
    ],
)
def test_conflicting_options_fail(run, bundle, text, arguments, message):
    arguments = [text if argument == "TEXT" else argument for argument in arguments]
    message = message.replace("TEXT", str(text)).replace("BUNDLE", str(bundle))
    assert run("translate", bundle, *arguments) == (1, "", f"error: {message}\n")


def test_other_file_kinds_are_refused(run, bundle, tmp_path):
    (tmp_path / "a.docx").write_text("seven")
    (tmp_path / "b.txt").write_bytes(b"t\xff")
    suffixes = ".txt, .text, .md, .markdown, .html, .htm, .xhtml"
    for name, message in (
        ("a.docx", f"expected one of the suffixes {suffixes}, got {{file}}; give --format."),
        ("b.txt", "expected UTF-8, got byte 0xff at position 1 of {file}."),
        ("missing.txt", "expected a document, got {file}, which does not exist."),
    ):
        file = tmp_path / name
        expected = f"error: FILE: {message.format(file=file)}\n"
        assert run("translate-document", bundle, file) == (1, "", expected)
