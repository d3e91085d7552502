"""Reading and writing of lines: compression, records, and the parts of an output."""

import gzip
import json
import tracemalloc

import pytest

from tfk_transformer.apps.cli import processing
from tfk_transformer.apps.cli.arguments import BadLines
from tfk_transformer.formats import compression
from tfk_transformer.formats.compression import (
    compress,
    count_lines,
    open_decompressed,
    text_suffix,
)
from tfk_transformer.formats.lines import JsonObjects, LineReader, TableRows, Texts
from tfk_transformer.formats.output_file import (
    OutputFile,
    UnfinishedRun,
    content_digest,
    unfinished_run,
)
from tfk_transformer.formats.registry import input_records, output_records

DATA = "one\n\ntwo\r\nU+2028:\u2028.\nlast".encode()
LINES = ["one", "", "two", "U+2028:\u2028.", "last"]
RUN = {"model": "m", "on_error": "blank"}


def written(path, data=DATA):
    path.write_bytes(
        compress(data[:7], path.suffix if path.suffix != ".txt" else "")
        + compress(data[7:], _kind(path))
    )
    return path


def _kind(path):
    return path.suffix if path.suffix in (".gz", ".zst") else ""


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.zst"])
def test_concatenated_parts_read_as_one(tmp_path, name):
    path = written(tmp_path / name)
    source = LineReader(path, Texts())
    assert [line.texts[0] for line in source] == LINES
    assert source.lines == count_lines(path) == 5
    with open_decompressed(path) as file:
        assert file.read() == DATA
    assert compress(DATA, _kind(path)) == compress(DATA, _kind(path))


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
def test_cut_compressed_file_is_refused(tmp_path, name):
    path = written(tmp_path / name)
    whole = path.read_bytes()
    for data in (whole[:-3], b"plain text\n"):
        path.write_bytes(data)
        with pytest.raises(
            ValueError, match=f"{name}: expected a complete .* file, got a corrupt or truncated one"
        ):
            list(LineReader(path, Texts()))


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.zst"])
def test_endless_line_is_refused(tmp_path, name):
    path = tmp_path / name
    part = compress(bytes(2**25), _kind(path))
    path.write_bytes(compress(b"one\n", _kind(path)) + part * 4)
    del part
    tracemalloc.start()
    lines = iter(LineReader(path, Texts()))
    assert next(lines).texts == ("one",)
    with pytest.raises(
        ValueError, match=rf"{name}:2: expected a line of at most 16,777,216 bytes, got a longer"
    ):
        next(lines)
    with pytest.raises(ValueError, match=f"{name}:2: expected a line of at most"):
        count_lines(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * compression.MAX_LINE_BYTES


def test_longest_line_includes_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(compression, "MAX_LINE_BYTES", 4)
    (tmp_path / "a").write_bytes(b"one\nfour")
    assert [line.texts[0] for line in LineReader(tmp_path / "a", Texts())] == ["one", "four"]
    (tmp_path / "a").write_bytes(b"one\nfour\n")
    with pytest.raises(ValueError, match="a:2: expected a line of at most 4 bytes"):
        list(LineReader(tmp_path / "a", Texts()))


def test_chunks_of_long_lines_are_short(tmp_path, monkeypatch):
    monkeypatch.setattr(processing, "CHUNK_CHARACTERS", 9)
    (tmp_path / "a").write_bytes(b"one\n" * 5)
    lines = LineReader(tmp_path / "a", Texts())
    chunks = processing.process_lines(lines, list, BadLines.STOP)
    assert [len(chunk.lines) for chunk in chunks] == [2, 2, 1]


def test_text_suffix_skips_compression(tmp_path):
    assert [text_suffix(tmp_path / name) for name in ("a.TSV.gz", "a.jsonl", "b.de.zst", "gz")] == [
        ".tsv",
        ".jsonl",
        ".de",
        "",
    ]


def test_byte_order_mark_is_dropped(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\n")
    assert [line.texts for line in LineReader(tmp_path / "a", Texts())] == [("one",)]


def test_table_rows_stay_literal(tmp_path):
    (tmp_path / "a.tsv").write_bytes(
        b'id\ten\tnote\n1\tsay "one\t"\n2\ttwo\n3\t\xff\tx\n4\tfour\tx\r\n'
    )
    rows = input_records(tmp_path / "a.tsv", "en", "translation")
    assert isinstance(rows, TableRows)
    actual = list(LineReader(tmp_path / "a.tsv", rows))
    assert [(line.number, line.texts) for line in actual] == [
        (2, ('say "one',)),
        (3, ()),
        (4, ()),
        (5, ("four",)),
    ]
    assert [line.reason[:30] for line in actual] == [
        "",
        "expected 3 columns, as in the ",
        "expected UTF-8, got byte 0xff ",
        "",
    ]
    assert rows.output_header == "id\ten\tnote\ttranslation"
    assert rows.result_line(actual[0].record, "a\tb\nc", "") == '1\tsay "one\t"\ta b c'
    assert rows.result_line(actual[3].record, None, "too long") == "4\tfour\tx\t"
    assert rows.result_line(None, None, "not UTF-8") == ""


def test_column_selected_by_number(tmp_path):
    (tmp_path / "a.tsv").write_text("1\tone\n2\n")
    rows = TableRows("2", "translation")
    first, second = LineReader(tmp_path / "a.tsv", rows)
    assert (first.texts, second.reason, rows.output_header) == (
        ("one",),
        "expected a column 2, got 1 in this line.",
        None,
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("de", "translation"), "--field: expected one of the columns id, en, got de."),
        (
            ("en", "id"),
            "--output-field: expected a new column, got id, which exists; give another name.",
        ),
    ],
)
def test_bad_columns_are_refused(tmp_path, rows, message):
    (tmp_path / "a.tsv").write_text("id\ten\n1\tone\n")
    with pytest.raises(ValueError) as error:
        list(LineReader(tmp_path / "a.tsv", TableRows(*rows)))
    assert str(error.value) == message


def test_json_objects_keep_their_text(tmp_path):
    """Numbers, spaces and escapes that another writer would change."""
    given = '{"n": 1.50, "n": 2e3,  "text":"a\\u00e4\\n" } '
    objects = JsonObjects("text", "translation")
    assert objects.text(given) == "aä\n"
    assert (
        objects.result_line(given, 'b"ö', "")
        == '{"n": 1.50, "n": 2e3,  "text":"a\\u00e4\\n", "translation": "b\\"ö"}'
    )
    assert json.loads(objects.result_line(given, None, "too long"))["translation"] is None
    assert objects.result_line(None, None, "f:1: bad") == '{"error": "f:1: bad"}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "expected a JSON object, got a line that cannot be parsed"),
        ("{", "expected a JSON object, got a line that cannot be parsed"),
        ("[" * 100_000, "expected a JSON object, got a line that cannot be parsed"),
        ('["text"]', "expected a JSON object, got a value of type list"),
        ("{}", "expected a string in text, got nothing"),
        ('{"text": 1}', "expected a string in text, got int"),
        (
            '{"text": "a", "translation": "b"}',
            "expected an object without translation, got one with it; choose another name",
        ),
    ],
)
def test_bad_json_line_is_refused(line, reason):
    with pytest.raises(ValueError) as error:
        JsonObjects("text", "translation").text(line)
    assert str(error.value).startswith(reason)


def test_file_names_choose_records(tmp_path):
    table, objects, texts = tmp_path / "a.tsv.gz", tmp_path / "a.jsonl", tmp_path / "a.en.zst"
    rows = input_records(table, "1", "translation")
    assert output_records(rows, table, None) is rows
    assert output_records(rows, table, tmp_path / "b.tsv") is rows
    assert type(output_records(rows, table, texts)) is Texts
    assert type(input_records(texts, None, "x")) is Texts
    for call, message in (
        (
            lambda: output_records(rows, table, objects),
            "--output: expected .jsonl only for an --input with this end",
        ),
        (
            lambda: output_records(Texts(), None, table),
            "--output: expected .tsv only for an --input with this end",
        ),
        (
            lambda: input_records(objects, None, "x"),
            "--field: expected the name of the value with the texts, since --input is",
        ),
        (
            lambda: input_records(texts, "1", "x"),
            "--field: expected an --input with the end .tsv or .jsonl",
        ),
        (
            lambda: input_records(table, "0", "x"),
            "--field: expected a column's name, or its number from 1, got 0",
        ),
    ):
        with pytest.raises(ValueError) as error:
            call()
        assert str(error.value).startswith(message)


def part(path, texts, lines, done=None, end=True):
    """Write and commit a part, and leave the file as a killed process would."""
    out = OutputFile(path, RUN, done).__enter__()
    out.write(texts)
    out.commit(lines, f"hash {lines}", lines)
    if end:
        out.write(["not committed"])
    out._file.close()
    return out


@pytest.mark.parametrize("name", ["out.txt", "out.gz", "out.zst"])
def test_uncommitted_data_is_cut_off(tmp_path, name):
    path = tmp_path / name
    part(path, ["a"], 1)
    with (tmp_path / f"{name}.partial").open("ab") as file:
        file.write(b"\x1f\x8btorn")
    done = unfinished_run(path)
    part(path, ["b"], 2, done)
    with OutputFile(path, RUN, unfinished_run(path)) as out:
        assert (out.done.lines, out.done.written) == (2, 2)
        out.write(["c"])
    whole = tmp_path / f"whole-{name}"
    with OutputFile(whole) as out:
        for text in "abc":
            out.write([text])
    assert path.read_bytes() == whole.read_bytes()
    assert [line.texts[0] for line in LineReader(path, Texts())] == ["a", "b", "c"]
    assert sorted(tmp_path.iterdir()) == sorted([path, whole])


def test_empty_output_is_valid(tmp_path):
    with OutputFile(tmp_path / "out.gz"):
        pass
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == b""
    assert (tmp_path / "out.gz").stat().st_size


def test_renamed_run_is_complete(tmp_path):
    path = tmp_path / "out.txt"
    part(path, ["a"], 1, end=False)
    (tmp_path / "out.txt.partial").rename(path)
    assert unfinished_run(path) is None
    assert list(tmp_path.iterdir()) == [path]


def test_too_short_output_is_refused(tmp_path):
    path = tmp_path / "out.txt"
    part(path, ["a"], 1)
    (tmp_path / "out.txt.partial").write_text("a")
    with pytest.raises(
        ValueError,
        match=(
            "out.txt.partial: expected at least 2 bytes of the unfinished run, got 1; --force "
            "starts over."
        ),
    ):
        OutputFile(path, RUN, unfinished_run(path)).__enter__()
    (tmp_path / "out.txt.partial.json").write_text("{}")
    with pytest.raises(
        ValueError, match="expected the record of an unfinished run, got something else"
    ):
        unfinished_run(path)


def test_output_has_a_single_writer(tmp_path):
    with OutputFile(tmp_path / "out.txt") as first:
        with pytest.raises(ValueError, match="got one that another process is writing"):
            OutputFile(tmp_path / "out.txt").__enter__()
        first.write(["a"])
    assert (tmp_path / "out.txt").read_text() == "a\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError])
def test_error_keeps_finished_lines(tmp_path, error):
    (tmp_path / "file").write_text("old")
    with pytest.raises(error), OutputFile(tmp_path / "file") as out:
        out.write(["eins"])
        with (tmp_path / "file.partial").open("ab") as file:
            file.write(b"zw")  # as after a full disk
        raise error
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "file": "old",
        "file.partial": "eins\n",
    }


def test_old_lines_stay_until_new_ones(tmp_path):
    partial = tmp_path / "file.partial"
    partial.write_text("an earlier\nrun\n")
    with pytest.raises(ZeroDivisionError), OutputFile(tmp_path / "file"):
        raise ZeroDivisionError
    assert partial.read_text() == "an earlier\nrun\n"
    with pytest.raises(ZeroDivisionError), OutputFile(tmp_path / "file") as out:
        out.write(["new"])
        raise ZeroDivisionError
    assert partial.read_text() == "new\n"
    with pytest.raises(ZeroDivisionError), OutputFile(tmp_path / "new" / "file"):
        raise ZeroDivisionError
    assert list((tmp_path / "new").iterdir()) == []


def test_only_the_same_run_continues():
    done = UnfinishedRun({**RUN, "settings": {"beam_size": 1}})
    done.check_run({**RUN, "settings": {"beam_size": 1}})
    with pytest.raises(
        ValueError,
        match=(
            'got model "n", was "m", settings {"beam_size": 4}, was {"beam_size": 1}; give the '
            "same, or"
        ),
    ):
        done.check_run({**RUN, "model": "n", "settings": {"beam_size": 4}})
    with pytest.raises(ValueError, match="on_error"):
        done.check_run({**done.run, "on_error": "skip"})
    UnfinishedRun({**RUN, "on_error": "stop"}).check_run({**RUN, "on_error": "skip"})


def test_digest_depends_on_content(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "weights").mkdir(parents=True)
        (tmp_path / name / "weights" / "w").write_bytes(b"12")
    assert content_digest(tmp_path / "a") == content_digest(tmp_path / "b")
    (tmp_path / "b" / "weights" / "w").write_bytes(b"13")
    assert content_digest(tmp_path / "a") != content_digest(tmp_path / "b")
