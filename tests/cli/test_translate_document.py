"""`tfk-transformer translate-document`."""

import json

import pytest

from tfk_transformer.apps.cli.commands.translate_document import DocumentFormat
from tfk_transformer.formats.registry import DOCUMENT_FORMATS, DOCUMENT_SUFFIXES
from tfk_transformer.text.results import DocumentSentence, DocumentTranslation

ARGUMENTS = "tfk_transformer.apps.cli.arguments"


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
    suffixes = ", ".join(filter(None, DOCUMENT_SUFFIXES))
    for name, message in (
        ("a.docx", f"expected one of the suffixes {suffixes}, got {{file}}; give --format."),
        ("b.txt", "expected UTF-8, got byte 0xff at position 1 of {file}; convert it to UTF-8."),
        ("missing.txt", "expected a document, got {file}, which does not exist."),
        ("", "expected a document, got the folder {file}; name a file in it."),
    ):
        file = tmp_path / name
        expected = f"error: FILE: {message.format(file=file)}\n"
        assert run("translate-document", bundle, file) == (1, "", expected)


def test_several_documents_go_to_a_folder(run, exported, tmp_path):
    (tmp_path / "a.md").write_text("# seven")
    (tmp_path / "b.html").write_text("<p>nine</p>")
    files = [tmp_path / "a.md", tmp_path / "b.html"]
    arguments = ["translate-document", exported / "translate.onnx", *files]
    assert run(*arguments, "--output", tmp_path / "de") == (0, "", "")
    texts = [(tmp_path / "de" / file.name).read_text() for file in files]
    assert texts == ["# sieben", "<p>neun</p>"]
    status, _, error = run(*arguments, "--output", tmp_path / "de")
    assert status == 1
    assert f"got {tmp_path / 'de' / 'a.md'}, which exists" in error


def test_several_documents_need_a_folder(run, bundle, tmp_path):
    a = tmp_path / "a.md"
    a.write_text("seven")
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.md").write_text("seven")
    for arguments, message in (
        ([a, a], "--output: expected a folder for 2 documents, got none; name one."),
        ([a, a, "--output", a], f"--output: expected a folder, got the file {a}; name a folder."),
        ([a, a, "--json"], "--json: expected one FILE, got 2; run the command for each FILE."),
        (
            [a, other / "a.md", "--output", tmp_path / "de"],
            "FILE: expected different names, got 2 files a.md; rename them.",
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
    message = "FILE: expected UTF-8, got byte 0xff at position 1 of standard input; convert it to"
    assert run(*arguments, stdin=b"t\xff") == (1, "", f"error: {message} UTF-8.\n")


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


def test_kept_sentences_are_counted(run, monkeypatch, tmp_path):
    class KeepingTranslator:
        def translate_document(self, text, format, **settings):
            sentence = DocumentSentence(0, 5, 0, 5, text, text, 0.0, keeps_source=True)
            return DocumentTranslation(text, [sentence])

    monkeypatch.setattr(f"{ARGUMENTS}.open_translator", lambda model: KeepingTranslator())
    monkeypatch.setattr(f"{ARGUMENTS}.check_settings", lambda model, settings: None)
    (tmp_path / "a.md").write_text("seven")
    status, out, error = run("translate-document", tmp_path, tmp_path / "a.md")
    assert (status, out) == (0, "seven")
    assert error == (
        "warning: 1 of 1 sentences are not translated, since their translations would change the "
        "markup.\n"
    )
