"""Tables: the cells of some columns are translated in place."""

import csv
import io

import pytest
from string_files import translated

TABLE = 'key,en,de\r\n"a","Hello, you ""x""","y"\r\nb,six\t,z\r\n\r\nc,"two\nlines",\r\n'


def test_other_cells_keep_their_bytes():
    expected = 'key,en,de\r\n"a","HELLO, YOU ""X""","y"\r\nb,SIX\t,z\r\n\r\nc,"TWO\nLINES",\r\n'
    assert translated(TABLE, "csv", fields=["en"]) == expected


def test_several_columns_have_names_or_numbers():
    text = "six;seven;8\n"
    assert translated(text, "csv", fields=["1", "2"]) == "SIX;SEVEN;8\n"
    assert translated("a\tb\nsix\tnine", "csv", fields=["b", "a"]) == "a\tb\nSIX\tNINE"


def test_cells_get_quotes_where_they_need_them():
    actual = translated("a,b\nsix,1\nseven,2\n", "csv", lambda text: f'{text}, "x"', fields=["a"])
    rows = list(csv.reader(io.StringIO(actual)))
    assert rows == [["a", "b"], ['six, "x"', "1"], ['seven, "x"', "2"]]


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("a,b\n", [], "fields: expected one of the columns a, b, or a number from 1 in a file"),
        ("a,b\n", ["c"], "got c; name the columns to translate"),
        ("a,a\n", ["a"], "got a; name the columns to translate"),
        ("a,b\nx,y\nz\n", ["b"], "expected 2 columns or more, got 1 in line 3; correct the row"),
        ('a,b\n"x,y\n', ["b"], "expected quotes around a whole cell, .* in line 2; correct"),
        ('a,b\n"x"y,z\n', ["b"], "expected quotes around a whole cell, .* in line 2; correct"),
    ],
)
def test_broken_tables_are_refused(text, fields, message):
    with pytest.raises(ValueError, match=message):
        translated(text, "csv", fields=fields)
