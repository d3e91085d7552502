"""Rows of ids as arrays, and rows up to the end token."""

import numpy as np


def padded(rows):
    """Rows of ids as one array, int32, with zeros after each."""
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return ids


def until_end(row, end):
    """A row up to its first end token, which is included."""
    return row[: row.index(end) + 1] if end in row else row
