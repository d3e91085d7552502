"""Files with a pair in each row: TSV, CSV, JSON lines and Parquet."""

import gzip
import json
import re
import tracemalloc

import pytest

from tfk_transformer.datasets import Report, load
from tfk_transformer.runtime_environment import install_line

PAIRS = [("ein Hund", "a dog"), ("zwei Hunde", "two dogs"), ("grün; blau", "green, blue")]
TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
ROWS = [{"de": source, "en": target} for source, target in PAIRS]


@pytest.fixture
def write(tmp_path):
    """Write a file, and return its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def texts(spec, split="train", report=None):
    return [pair[:2] for pair in load(spec).pairs(split, report)]


def refusal(spec):
    with pytest.raises(ValueError, match="^data: expected ") as error:
        list(load(spec).pairs("train"))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_tsv_has_texts_in_its_first_line(write):
    path = write("pairs.tsv", TSV)
    assert list(load(str(path)).pairs("train"))[0] == ("ein Hund", "a dog", "pairs.tsv:1")


@pytest.mark.parametrize("header", ["de\ten\n", "source\ttarget\n"])
def test_known_names_in_a_tsv_are_a_header(write, header):
    assert texts(f"tsv:{write('pairs.tsv', header + TSV)}") == PAIRS


def test_quotes_have_no_meaning_in_a_tsv(write):
    path = write("x", '"Nein\t"No\n')
    assert texts(f"tsv:{path}") == [('"Nein', '"No')]


def test_only_a_newline_ends_a_row(write):
    path = write("pairs.tsv", "\ufeffa\u2028b\x0cc\td\re\r\n")
    assert texts(str(path)) == [("a\u2028b\x0cc", "d\re")]


def test_columns_have_numbers(write):
    path = write("pairs.tsv", "1\tein Hund\ta dog\n2\tzwei\ttwo\n")
    assert texts(f"{path},source=3,target=2") == [("a dog", "ein Hund"), ("two", "zwei")]


def test_three_columns_need_names(write):
    path = write("pairs.tsv", "ein Hund\ta dog\tCC-BY\n")
    assert refusal(str(path)) == (
        "data: expected two columns, got 1, 2, 3 in pairs.tsv; name the columns of sources and "
        "targets, such as source=1,target=2."
    )


def test_unknown_column_has_its_nearest_name(write):
    path = write("pairs.csv", "german,english\nein Hund,a dog\n")
    assert "expected the column 'germn', got german, english in pairs.csv" in refusal(
        f"{path},source=germn,target=english"
    )


def test_both_columns_must_be_named(write):
    path = write("pairs.csv", "german,english\nein Hund,a dog\n")
    with pytest.raises(ValueError, match="got source=german and target=None; name both"):
        load(f"{path},source=german")


def test_keywords_name_the_columns_of_a_file(write):
    path = write("pairs.csv", "german,english\nein Hund,a dog\n")
    source = load(str(path), source="english", target="german")
    assert source.name == f"{path},source=english,target=german"


def test_named_columns_are_languages(write):
    path = write("pairs.csv", "de,en\nein Hund,a dog\n")
    source = load(f"{path},source=en,target=de")
    assert (source.source_language, source.target_language) == ("en", "de")


@pytest.mark.parametrize("separator", [",", ";"])
def test_csv_has_names_and_quotes(write, separator):
    content = f'german{separator}english\n"a{separator} ""b"""{separator}"c\nd"\n'
    expected = [(f'a{separator} "b"', "c\nd")]
    assert texts(str(write("pairs.csv", content))) == expected


def test_csv_without_names_is_refused(write):
    message = refusal(str(write("pairs.csv", "Hallo!,Hi!\nJa,Yes\n")))
    assert "got 'Hallo!'; for a table without names, add ,source=1,target=2." in message


def test_csv_without_names_is_read_by_numbers(write):
    path = write("pairs.csv", "Hallo!,Hi!\nJa,Yes\n")
    assert texts(f"{path},source=1,target=2") == [("Hallo!", "Hi!"), ("Ja", "Yes")]


def test_open_quote_in_a_csv_is_refused(write):
    message = refusal(str(write("pairs.csv", 'a,b\nc,d\n"e,f\ng,h\n')))
    assert "got unexpected end of data in line 4 of " in message


def test_json_lines_are_read_by_name(write):
    path = write("pairs.jsonl", "".join(f"{json.dumps({'id': 1, **row})}\n" for row in ROWS))
    assert texts(f"{path},source=en,target=de") == [pair[::-1] for pair in PAIRS]


def test_nested_columns_are_languages(write):
    lines = [json.dumps({"id": "1", "translation": row}) for row in ROWS]
    assert texts(str(write("pairs.jsonl", "\n".join(lines)))) == PAIRS


def test_parquet_is_read_by_name(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    table = pyarrow.Table.from_pylist(
        [{"id": str(number), "translation": row} for number, row in enumerate(ROWS)]
    )
    parquet.write_table(table, tmp_path / "pairs.parquet")
    assert texts(str(tmp_path / "pairs.parquet")) == PAIRS


def test_damaged_parquet_is_refused(write):
    pytest.importorskip("pyarrow")
    path = write("pairs.parquet", b"PAR1" + bytes(90))
    with pytest.raises(ValueError, match=f"^{path}: expected a Parquet file, got "):
        load(str(path)).pairs("train")


def test_parquet_of_many_bytes_is_refused(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    table = pyarrow.table({"de": ["x" * 10**8], "en": ["y"]})
    parquet.write_table(table, tmp_path / "pairs.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(ValueError, match="expected a Parquet file, got expected at most"):
        load(str(tmp_path / "pairs.parquet")).pairs("train")


def test_missing_package_has_its_install_line(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    (tmp_path / "pairs.parquet").write_bytes(b"")
    with pytest.raises(ImportError, match=re.escape(install_line("data"))):
        load(str(tmp_path / "pairs.parquet")).pairs("train")


def test_compressed_table_is_read(write):
    assert texts(str(write("pairs.tsv.gz", gzip.compress(TSV.encode())))) == PAIRS


def test_truncated_table_is_refused(write):
    path = write("pairs.tsv.gz", gzip.compress(TSV.encode())[:-9])
    with pytest.raises(ValueError, match=r"expected a complete \.gz file, got a corrupt"):
        load(str(path)).pairs("train")


def test_broken_rows_are_counted(write):
    content = TSV.encode() + b"no tab\n\tempty\n\xff\ty\na\tb\tc\n" + b"x\ty\n" * 3
    report = Report()
    assert len(texts(str(write("pairs.tsv", content)), report=report)) == 6
    assert report.lines() == [
        "dropped 1 pair with fewer than 2 columns (pairs.tsv:4)",
        "dropped 1 pair with an empty side (pairs.tsv:5)",
        "dropped 1 pair not in UTF-8 (pairs.tsv:6)",
        "dropped 1 pair with more than 2 columns (pairs.tsv:7)",
    ]


def test_invalid_json_lines_are_counted(write):
    lines = [*map(json.dumps, ROWS), "{", "[]", '{"de": 3, "en": "x"}']
    report = Report()
    assert texts(str(write("pairs.jsonl", "\n".join(lines))), report=report) == PAIRS
    assert report.lines() == [
        "dropped 2 pairs not written as a JSON object (pairs.jsonl:4, pairs.jsonl:5)",
        "dropped 1 pair with a value of type int (pairs.jsonl:6)",
    ]


def test_more_broken_rows_than_pairs_are_refused(write):
    message = refusal(str(write("pairs.tsv", "a\tb\nc\nd\n")))
    assert "got 1 and 2: dropped 2 pairs with fewer than 2 columns (pairs.tsv:2, " in message


def test_page_of_a_website_is_refused(write):
    """As `curl` of a table's page on GitHub writes it."""
    message = refusal(str(write("pairs.tsv", "\n<!DOCTYPE html>\n<html>\n")))
    assert "expected at least two columns in " in message


def test_csv_with_an_empty_first_line_is_refused(write):
    assert "got '' in line 1; " in refusal(str(write("pairs.csv", "\na,b\n")))


def test_long_line_is_refused(write):
    path = write("pairs.tsv", f"a\tb\n{'c' * 2**24}\td\n")
    with pytest.raises(ValueError, match=r"pairs\.tsv:2: expected a line of at most 16,777,216 "):
        list(load(str(path)).pairs("train"))


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a file, got .*x.tsv, which does not exist"):
        load(f"tsv:{tmp_path}/x.tsv")


def test_digest_is_of_the_bytes(write):
    first = load(str(write("a.tsv", TSV))).digest("train")
    assert load(str(write("b.tsv", TSV))).digest("train") == first
    assert load(str(write("b.tsv", TSV + "a\tb\n"))).digest("train") != first


def test_table_is_streamed(write):
    path = write("pairs.tsv", "".join(f"Satz {n}\tsentence {n}\n" for n in range(100_000)))
    source = load(str(path))
    assert len(source.splits) == 4
    tracemalloc.start()
    count = sum(1 for _ in source.pairs("train"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 98_000
    assert peak < 1_000_000
