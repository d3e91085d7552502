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


def hypotheses_of(generated, texts, start, end):
    """Return the hypotheses of each text that `generate` of transformers returned, as rows of
    tokens without the `start` first ones, and their log-probabilities.
    """
    rows = np.array_split(generated.sequences.numpy()[:, start:], len(texts))
    scores = generated.get("sequences_scores")  # only of a beam search
    scores = rows if scores is None else scores.numpy().reshape(len(texts), -1)
    return [
        ([until_end(row.tolist(), end) for row in some], these)
        for some, these in zip(rows, scores, strict=True)
    ]
