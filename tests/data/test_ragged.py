import numpy as np

from tfk_transformer.data.encoding import Rows

SEQUENCES = [[5, 6, 7], [], [8], [70_000, 9]]


def as_lists(rows):
    return [rows[place].tolist() for place in range(len(rows))]


def test_rows_keep_their_sequences():
    rows = Rows.of(SEQUENCES)
    assert as_lists(rows) == SEQUENCES
    assert rows.lengths.tolist() == [3, 0, 1, 2]
    assert as_lists(Rows.joined([rows, Rows.of([[1]]), rows])) == [*SEQUENCES, [1], *SEQUENCES]
    assert len(Rows.of([])) == 0


def test_padded_rows_keep_the_order():
    actual = Rows.of(SEQUENCES).padded(np.array([3, 0]), (3, 4))
    assert actual.dtype == np.int32
    assert actual.tolist() == [[70_000, 9, 0, 0], [5, 6, 7, 0], [0, 0, 0, 0]]


def test_files_use_16_bits_if_enough(tmp_path):
    for name, sequences, width in (("wide", SEQUENCES, 4), ("narrow", [[5, 65_535], [6]], 2)):
        Rows.of(sequences).save(tmp_path / name)
        rows = Rows.load(tmp_path / name)
        assert as_lists(rows) == sequences
        assert rows.ids.dtype.itemsize == width
        assert isinstance(rows.ids, np.memmap)
        assert rows.padded([1], (1, 2)).dtype == np.int32
