"""`tfk-transformer translate-document`."""

import io
import json
import zipfile

import pytest
from terminal import Terminal

from tfk_transformer.apps.cli.commands.translate_document import DocumentFormat
from tfk_transformer.formats.registry import DOCUMENT_FORMATS, DOCUMENT_SUFFIXES


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
    assert written == "\ufeff" + record["text"]
    assert written.count("\r\n") == 3
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
    assert status == 2
    assert "'pdf' is not one of" in error


def test_attention_layer_is_checked(run, exported, tmp_path):
    (tmp_path / "in.md").write_text("One *hundred* two")
    arguments = ["translate-document", exported / "translate.onnx", tmp_path / "in.md"]
    status, out, _ = run(*arguments, "--attention-layer", -1)
    assert status == 0
    assert out.count("*") == 2
    status, _, error = run(*arguments, "--attention-layer", 9)
    assert status == 1
    assert error.startswith("error: attention_layer: expected a number from ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--json", "--stream", "seven"],
            "--json: expected no --stream, which prints text; leave out one of them.",
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
def test_conflicting_options_fail(run, bundle, arguments, message):
    assert run("translate", bundle, *arguments) == (1, "", f"error: {message}\n")


def test_other_file_kinds_are_refused(run, bundle, tmp_path):
    (tmp_path / "a.pdf").write_text("seven")
    (tmp_path / "b.txt").write_bytes(b"one\nt\xff")
    (tmp_path / "c.md").write_bytes(b"one\0")
    suffixes = ", ".join(filter(None, DOCUMENT_SUFFIXES))
    for name, message in (
        ("a.pdf", f"FILE: expected one of the suffixes {suffixes}, got {{file}}; give --format."),
        ("b.txt", "{file}:2: expected UTF-8, got byte 0xff at column 2; convert it to UTF-8."),
        (
            "c.md",
            "{file}:1: expected text, got the character NUL at column 4; convert it to UTF-8.",
        ),
        ("missing.txt", "FILE: expected a document, got {file}, which does not exist."),
    ):
        file = tmp_path / name
        expected = f"error: {message.format(file=file)}\n"
        assert run("translate-document", bundle, file) == (1, "", expected)


def test_parser_errors_name_the_file(run, exported, tmp_path):
    (tmp_path / "a.html").write_text("<i>" * 4000)
    status, _, error = run("translate-document", exported / "translate.onnx", tmp_path / "a.html")
    assert status == 1
    assert error.startswith(f"error: {tmp_path / 'a.html'}: expected HTML, got more than ")


def test_an_office_file_is_written(run, exported, tmp_path):
    container = '<a><rootfile full-path="book.opf"/></a>'
    package = '<a><item href="a.xhtml" media-type="application/xhtml+xml"/></a>'
    with zipfile.ZipFile(tmp_path / "a.epub", "w") as file:
        file.writestr("META-INF/container.xml", container)
        file.writestr("book.opf", package)
        file.writestr("a.xhtml", "<html><p>seven</p></html>")
    arguments = ["translate-document", exported / "translate.onnx", tmp_path / "a.epub"]
    assert run(*arguments, "--output", tmp_path / "b.epub") == (0, "", "")
    with zipfile.ZipFile(io.BytesIO((tmp_path / "b.epub").read_bytes())) as file:
        assert file.read("a.xhtml") == b"<html><p>sieben</p></html>"
    message = (
        "--output: expected a file for format epub, which is not text; name one, and leave out"
    )
    assert run(*arguments, "--json") == (1, "", f"error: {message} --json.\n")


def test_several_documents_go_to_a_folder(run, exported, tmp_path):
    (tmp_path / "a.md").write_text("# seven")
    (tmp_path / "b.html").write_text("<p>nine</p>")
    files = [tmp_path / "a.md", tmp_path / "b.html"]
    arguments = ["translate-document", exported / "translate.onnx", *files]
    assert run(*arguments, "--output", tmp_path / "de")[0] == 0
    texts = [(tmp_path / "de" / file.name).read_text() for file in files]
    assert texts == ["# sieben", "<p>neun</p>"]


def test_several_documents_need_a_folder(run, bundle, tmp_path):
    a = tmp_path / "a.md"
    a.write_text("seven")
    for arguments, message in (
        ([a, a], "--output: expected a folder for the translations, got none; name one."),
        ([tmp_path], "--output: expected a folder for the translations, got none; name one."),
        (
            [a, a, "--output", a],
            f"--output: expected a folder for the translations, got {a}; name one.",
        ),
        (
            [a, "-", "--output", tmp_path / "de"],
            "FILE: expected - as the only document, got 2; leave out -.",
        ),
    ):
        expected = (1, "", f"error: {message}\n")
        assert run("translate-document", bundle, *arguments) == expected


def test_standard_input_is_a_document(run, exported):
    arguments = ["translate-document", exported / "translate.onnx", "-"]
    assert run(*arguments, stdin=b"seven\n\nnine\n") == (0, "sieben\n\nneun\n", "")
    html = run(*arguments, "--format", "html", stdin=b"<p>seven<p>nine")
    assert html == (0, "<p>sieben<p>neun", "")
    message = "standard input:1: expected UTF-8, got byte 0xff at column 2; convert it to UTF-8."
    assert run(*arguments, stdin=b"t\xff") == (1, "", f"error: {message}\n")


def test_unknown_languages_are_refused(run, exported, tmp_path):
    (tmp_path / "a.html").write_text("<html lang=en>seven")
    arguments = ["translate-document", exported / "translate.onnx", tmp_path / "a.html"]
    for option in ("--language", "--target-language"):
        name = option.strip("-").replace("-", "_")
        message = f"{name}: expected an ISO 639 code of a language, got 'xx'; write a code such as"
        assert run(*arguments, option, "xx") == (1, "", f"error: {message} en, de, ru or zh.\n")
    status, out, _ = run(*arguments, "--language", "en-US", "--target-language", "de-AT")
    assert (status, out) == (0, '<html lang="de-AT">sieben')


def test_attributes_are_an_option(run, exported, tmp_path):
    (tmp_path / "a.html").write_text('<p>seven <img alt="nine"></p>')
    (tmp_path / "a.md").write_text("seven")
    arguments = ["translate-document", exported / "translate.onnx"]
    assert run(*arguments, tmp_path / "a.html", "--attributes")[1].count('alt="neun"') == 1
    assert run(*arguments, tmp_path / "a.html")[1].count('alt="nine"') == 1
    message = "attributes: expected format 'html', got 'markdown'; leave attributes out."
    refused = run(*arguments, tmp_path / "a.md", "--attributes")
    assert refused == (1, "", f"error: {message}\n")


def test_front_matter_is_an_option(run, exported, tmp_path):
    (tmp_path / "a.md").write_text("---\ntitle: seven\nlayout: nine\n---\nnine\n")
    arguments = ["translate-document", exported / "translate.onnx", tmp_path / "a.md"]
    translated = run(*arguments, "--front-matter", "title", "--front-matter", "description")
    assert translated == (0, "---\ntitle: sieben\nlayout: nine\n---\nneun\n", "")


def test_columns_of_tables_are_an_option(run, exported, tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes(b'key,en\r\nseven,"nine"\r\n')
    arguments = ["translate-document", exported / "translate.onnx", file]
    expected = (0, 'key,en\r\nseven,"neun"\r\n', "")
    assert run(*arguments, "--field", "en") == expected
    status, _, error = run(*arguments)
    assert status == 1
    assert error.startswith("error: fields: expected one of the columns key, en, or a number from")


def test_kept_sentences_are_named(run, exported, tmp_path):
    """The model writes each number as one word, which two touching elements would mark."""
    kept = ["_seven_ _thousand_", "_nine_ _thousand_"]
    (tmp_path / "a.md").write_text(f"# seven\n\n{kept[0]}\n\nnine\n\n{kept[1]}\n")
    arguments = ["translate-document", exported / "translate.onnx", tmp_path / "a.md"]
    status, out, error = run(*arguments)
    assert (status, out) == (0, f"# sieben\n\n{kept[0]}\n\nneun\n\n{kept[1]}\n")
    assert error == (
        "warning: 2 of 4 sentences are not translated, since their translations would change the "
        f"markup:\n  {tmp_path}/a.md:3: {kept[0]}\n  {tmp_path}/a.md:7: {kept[1]}\n"
    )
    sentences = json.loads(run(*arguments, "--json")[1])["sentences"]
    assert [(each["line"], each["keeps_source"]) for each in sentences] == [
        (1, False),
        (3, True),
        (5, False),
        (7, True),
    ]


def test_long_lists_are_cut(run, exported, tmp_path):
    (tmp_path / "a.md").write_text("_seven_ _thousand_\n\n" * 23)
    _, _, error = run("translate-document", exported / "translate.onnx", tmp_path / "a.md")
    assert error.splitlines()[0].startswith("warning: 23 of 23 sentences are not translated, ")
    assert error.splitlines()[20:] == [f"  {tmp_path}/a.md:39: _seven_ _thousand_", "  and 3 more"]


def test_terminal_shows_sentences(exported, tmp_path):
    """Also in a single document, which is read as a whole."""
    (tmp_path / "a.md").write_text("seven\n\n" * 100)
    arguments = ["translate-document", exported / "translate.onnx", tmp_path / "a.md"]
    status, seen = Terminal(*arguments, "--output", tmp_path / "b.md").end()
    assert status == 0
    assert "100/100 sentences" in " ".join(seen.split())
    assert Terminal(*arguments, "--output", tmp_path / "c.md", "--quiet").end() == (0, "")
