"""`tfk-transformer translate --document`."""

import json

import pytest


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes("\ufeffSeven. Nine!\r\n\r\nForty-two\r\n".encode())
    return path


def test_a_document_is_translated(run, model, text):
    status, out, error = run("translate", model, "--document", text, "--beam-size", 1)
    assert (status, error) == (0, "")
    parts = [
        run("translate", model, sentence, "--beam-size", 1)[1].strip()
        for sentence in ("Seven.", "Nine!", "Forty-two")
    ]
    assert out == "\ufeff{} {}\n\n{}\n".format(*parts) or out == "\ufeff{} {}\r\n\r\n{}\r\n".format(
        *parts
    )


def test_the_output_file_and_json(run, model, text, tmp_path):
    arguments = ["translate", model, "--document", text, "--beam-size", 1]
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--json", "--stream", "seven"],
            "--json: expected no --stream, which prints text; leave out either.",
        ),
        (
            ["--language", "de", "seven"],
            "--language: expected --document FILE with it, got none; leave it out.",
        ),
        (
            ["--document", "TEXT", "seven"],
            "TEXT: expected none with --document, got one; leave it out.",
        ),
        (
            ["--document", "TEXT", "--stream"],
            "--stream: expected none with --document, got one; leave it out.",
        ),
        (["--document", "missing.txt"], "--document: No such file or directory: 'missing.txt'"),
    ],
)
def test_options_that_do_not_go_together(run, bundle, text, arguments, message):
    arguments = [text if argument == "TEXT" else argument for argument in arguments]
    assert run("translate", bundle, *arguments) == (1, "", f"error: {message}\n")


def test_a_file_of_another_kind_is_refused(run, bundle, tmp_path):
    (tmp_path / "a.docx").write_text("seven")
    (tmp_path / "b.txt").write_bytes(b"t\xff")
    suffixes = ".txt, .text, .md, .markdown, .html, .htm, .xhtml"
    expected = (
        f"error: --document: expected a file with one of the suffixes {suffixes}, got "
        f"{tmp_path}/a.docx.\n"
    )
    assert run("translate", bundle, "--document", tmp_path / "a.docx") == (1, "", expected)
    expected = f"error: --document: expected UTF-8, got byte 0xff at place 1 of {tmp_path}/b.txt.\n"
    assert run("translate", bundle, "--document", tmp_path / "b.txt") == (1, "", expected)
