import gzip
import re
import tracemalloc

import pytest

from tfk_transformer.datasets import Report, load
from tfk_transformer.formats.compression import compress


@pytest.fixture
def files(tmp_path):
    def write(
        source: bytes | None, target: bytes | None, source_name="de.txt", target_name="en.txt"
    ):
        for name, content in ((source_name, source), (target_name, target)):
            if content is not None:
                (tmp_path / name).write_bytes(content)
        return load(f"files:{tmp_path / source_name},{tmp_path / target_name}")

    return write


def texts(source, split="train"):
    return [(pair.source, pair.target) for pair in source.pairs(split)]


def expect(source, path, *problems):
    message = f"expected two parallel text files, got: {'; '.join(problems)}.".replace(
        "DIR", str(path)
    )
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


def test_pairs_of_two_files(files):
    source = files(b"ein Hund\nzwei Hunde\n", b"a dog\ntwo dogs\n")
    assert list(source.pairs("train")) == [
        ("ein Hund", "a dog", "de.txt:1"),
        ("zwei Hunde", "two dogs", "de.txt:2"),
    ]
    assert (source.source_language, source.target_language) == ("", "")


def test_each_split_has_all_pairs(files):
    source = files(b"eins\n", b"one\n")
    assert source.splits == ("train", "validation", "test")
    assert (
        texts(source, "train")
        == texts(source, "validation")
        == texts(source, "test")
        == [("eins", "one")]
    )


def test_paths_ignore_comma_spaces(tmp_path):
    (tmp_path / "a").write_text("eins\n")
    (tmp_path / "b").write_text("one\n")
    assert texts(load(f"files:{tmp_path / 'a'}, {tmp_path / 'b'}")) == [("eins", "one")]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_file_on_one_side(files, suffix):
    source = compress("fünf\nsechs\n".encode(), suffix)
    assert texts(files(source, b"five\nsix\n", source_name=f"de.txt{suffix}")) == [
        ("fünf", "five"),
        ("sechs", "six"),
    ]


def test_only_a_newline_ends_a_line(files):
    content = "a\u2028b\u0085c\x0cd\x1ce\rf\nzwei\n".encode()
    assert texts(files(content, b"one\ntwo\n")) == [
        ("a\u2028b\u0085c\x0cd\x1ce\rf", "one"),
        ("zwei", "two"),
    ]


def test_crlf_and_bom_are_removed(files):
    assert texts(files(b"\xef\xbb\xbfeins\r\nzwei\r\n", b"one\ntwo\n")) == [
        ("eins", "one"),
        ("zwei", "two"),
    ]


def test_last_line_needs_no_newline(files):
    assert texts(files(b"eins\nzwei", b"one\ntwo\n")) == [("eins", "one"), ("zwei", "two")]


def test_empty_sides_are_dropped(files):
    source, report = (
        files("eins\n\nzwei\n \u00a0\nfünf\n".encode(), b"one\nx\n\t\n\nfive\n"),
        Report(),
    )
    assert [pair.source for pair in source.pairs("train", report)] == ["eins", "fünf"]
    assert report.lines() == ["dropped 3 pairs with an empty side (de.txt:2, en.txt:3, de.txt:4)"]


def test_equal_names_show_full_paths(tmp_path):
    for side in ("de", "en"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "train.txt").write_text("x\n")
    source = load(f"files:{tmp_path}/de/train.txt,{tmp_path}/en/train.txt")
    assert next(source.pairs("train")).where == f"{tmp_path}/de/train.txt:1"


def test_unequal_line_counts_fail(files, tmp_path):
    source = files(b"1\n2\n3\n", b"1\n2\n3\n4\n5\n")
    with expect(source, tmp_path, "unequal line counts: DIR/de.txt has 3, DIR/en.txt has 5"):
        source.pairs("train")


def test_undecodable_line_is_named(files, tmp_path):
    source = files(b"eins\nf\xfcnf\n", b"one\nfive\n")
    with expect(source, tmp_path, "1 line not UTF-8 (DIR/de.txt:2); convert with iconv"):
        source.pairs("train")


def test_ten_undecodable_lines_named(files, tmp_path):
    source = files(b"\xff\n" * 13, b"x\n" * 13)
    places = ", ".join(f"DIR/de.txt:{line}" for line in range(1, 11))
    with expect(
        source, tmp_path, f"13 lines not UTF-8 ({places} … and 3 more); convert with iconv"
    ):
        source.pairs("train")


def test_empty_file_is_refused(files, tmp_path):
    source = files(b"", b"one\n")
    with expect(
        source,
        tmp_path,
        "DIR/de.txt: empty",
        "unequal line counts: DIR/de.txt has 0, DIR/en.txt has 1",
    ):
        source.pairs("train")


def test_missing_file_fails_at_load(files, tmp_path):
    with expect(None, tmp_path, "DIR/de.txt: not found", "DIR/en.txt: not found"):
        files(None, None)


def test_removed_file_fails_on_read(files, tmp_path):
    source = files(b"eins\n", b"one\n")
    (tmp_path / "de.txt").unlink()
    with expect(source, tmp_path, "DIR/de.txt: not found"):
        source.pairs("test")


def test_folder_is_not_a_file(files, tmp_path):
    (tmp_path / "de.txt").mkdir()
    source = files(None, b"one\n")
    with expect(source, tmp_path, "DIR/de.txt: not a regular file"):
        source.pairs("train")


def test_all_problems_come_at_once(files, tmp_path):
    source = files(b"a\n\xff\nc\n", b"\xfe\nb\n")
    with expect(
        source,
        tmp_path,
        "1 line not UTF-8 (DIR/de.txt:2); convert with iconv",
        "1 line not UTF-8 (DIR/en.txt:1); convert with iconv",
        "unequal line counts: DIR/de.txt has 3, DIR/en.txt has 2",
    ):
        source.pairs("train")


def test_plain_text_is_not_gzip(files):
    source = files(b"eins\n", b"one\n", source_name="de.gz")
    with pytest.raises(
        ValueError,
        match=r"de\.gz: expected a complete \.gz file, got .*\(Not a gzipped file .*make",
    ):
        source.pairs("train")


def test_truncated_gzip_is_reported(files):
    source = files(gzip.compress(b"eins\nzwei\n")[:-9], b"one\ntwo\n", source_name="de.gz")
    with pytest.raises(
        ValueError,
        match=r"de\.gz: expected a complete .* one \(Compressed file ended before the .*; make it",
    ):
        source.pairs("train")


def test_gzip_checksum_is_verified(files):
    content = bytearray(gzip.compress(b"eins\nzwei\n"))
    content[-8] ^= 1
    source = files(bytes(content), b"one\ntwo\n", source_name="de.gz")
    with pytest.raises(
        ValueError, match=r"de\.gz: expected a complete \.gz file, got .*\(CRC check failed .*make"
    ):
        source.pairs("train")


def test_endless_line_is_refused(files):
    endless = gzip.compress(bytes(2**24 + 1))
    source = files(endless, b"one\n", source_name="de.gz")
    with pytest.raises(
        ValueError,
        match=r"de\.gz:1: expected a line of at most 16,777,216 bytes, got a longer one;",
    ):
        source.pairs("train")


def test_source_checks_files_once(files, tmp_path):
    source = files(b"eins\nzwei\n", b"one\ntwo\n")
    assert len(texts(source)) == 2
    (tmp_path / "de.txt").write_bytes(b"eins\n\xff\n")
    assert next(source.pairs("validation")).source == "eins"
    with expect(source, tmp_path, "1 line not UTF-8 (DIR/de.txt:2); convert with iconv"):
        files(None, None).pairs("train")


def test_pairs_use_little_memory(files):
    source = files(
        b"ein langer Satz, hundert Byte\n" * 100_000, b"a long sentence, some bytes\n" * 100_000
    )
    tracemalloc.start()
    count = sum(1 for _ in source.pairs("train"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 100_000
    assert peak < 300_000


def test_pairs_are_read_lazily(files, tmp_path):
    source = files(b"eins\n" * 100_000, b"one\n" * 100_000)
    pairs = source.pairs("train")
    next(pairs)
    for name in ("de.txt", "en.txt"):
        with open(tmp_path / name, "ab") as file:
            file.write(b"later\n")
    assert list(pairs)[-1] == ("later", "later", "de.txt:100001")
