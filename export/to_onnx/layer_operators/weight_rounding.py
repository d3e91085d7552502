"""Round weights to 8-bit integers, and find the ranges of the rows that they multiply."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

INT8_MAX = 127  # the largest 8-bit weight; without -128, weights are symmetric around zero
LARGEST_PAIR = 128  # the sum of two weights of one sign: 128 * 255 < 2**15
DAMPING = 0.01  # the share of a diagonal's mean that is added to the diagonal
ROUNDING_BLOCK = 32  # rows that compensate the errors of all earlier rows in one product
COLUMNS = 4096  # columns that are rounded together, to limit the memory for large vocabularies


class RowStatistics(NamedTuple):
    """Statistics of the rows (R, rows) that a matrix (rows, columns) is multiplied by."""

    low: float  # the smallest number, at most 0
    high: float  # the largest number, at least 0
    moments: np.ndarray  # float64 (rows, rows), the transposed rows times the rows


class WeightRounding:
    """Rounds the weights of a model's products to int8, each once.

    `rows` are from `calibration.observe_rows`, and `float32_names` parts of names to leave out.
    """

    def __init__(self, rows: Mapping[str, RowStatistics], float32_names: Sequence[str] = ()):
        self.rows = rows
        self._float32_names = float32_names
        self._rounded: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def is_float32(self, name: str) -> bool:
        """Whether the weights of this name remain float32."""
        return any(part in name for part in self._float32_names)

    def rounded(self, name: str, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return `rounded_columns` of the matrix (rows, columns) of this name."""
        if name not in self._rounded:
            self._rounded[name] = rounded_columns(matrix, self.rows[name].moments)
        return self._rounded[name]


def rounded_columns(matrix: np.ndarray, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a float32 matrix (rows, columns) as int8, and the float32 scales of its columns.

    Without VNNI, onnxruntime multiplies with the instruction `vpmaddubsw`. It adds the products of
    rows 2k and 2k + 1, each of a uint8 and an int8, in 16 bits, and clips larger sums. The scale of
    a column is therefore so large that no sum of two weights of the same sign exceeds
    `LARGEST_PAIR`. The sum of two weights of opposite signs is smaller than the larger weight.

    Later rows compensate the rounding errors of earlier rows, which minimizes the change of
    products with rows of these moments. The result equals the result of GPTQ (arXiv:2210.17323,
    algorithm 1), computed as the nearest plane of a lattice (arXiv:2507.18553), without an inverse
    matrix.
    """
    shares = _error_shares(moments)
    parts = np.split(matrix, range(COLUMNS, matrix.shape[1], COLUMNS), axis=1)
    rounded, scales = zip(*(_round_part(part, shares) for part in parts), strict=True)
    return np.concatenate(rounded, axis=1), np.concatenate(scales)


def _round_part(matrix: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `rounded_columns` of some of the columns; shares are those of `_error_shares`."""
    import tensorflow as tf

    # With these scales, no weight exceeds INT8_MAX and no pair of weights exceeds LARGEST_PAIR.
    signs = np.stack([np.maximum(matrix, 0), np.maximum(-matrix, 0)])  # (2, rows, columns)
    even = np.pad(signs, [(0, 0), (0, len(matrix) % 2), (0, 0)])
    pairs = (even[:, 0::2] + even[:, 1::2]).max(axis=(0, 1))
    scale = np.maximum(signs.max(axis=(0, 1)) / INT8_MAX, pairs / LARGEST_PAIR)
    scale = np.where(scale > 0, scale, 1)
    scaled = matrix / scale
    rounded = np.empty(scaled.shape, "int8")
    errors = np.empty_like(scaled)
    for first in range(0, len(scaled), ROUNDING_BLOCK):
        end = min(first + ROUNDING_BLOCK, len(scaled))
        # TensorFlow computes the product. NumPy's threads wait for each other in busy loops, which
        # takes many times as long while other programs run.
        compensation = tf.linalg.matmul(shares[first:end, :first], errors[:first]).numpy()
        target = scaled[first:end] + compensation
        for row in range(first, end):
            # The other weight of the pair of rows.
            before = rounded[row - 1].astype("float32") if row % 2 else np.zeros_like(scale)
            lowest = np.maximum(-INT8_MAX, -LARGEST_PAIR - np.minimum(before, 0))
            highest = np.minimum(INT8_MAX, LARGEST_PAIR - np.maximum(before, 0))
            rounded[row] = np.clip(np.round(target[row - first]), lowest, highest)
            errors[row] = scaled[row] - rounded[row]
            target[row + 1 - first :] += np.outer(shares[row + 1 : end, row], errors[row])
    return rounded, scale


def _error_shares(moments: np.ndarray) -> np.ndarray:
    """Return the share of each earlier row's error that a row compensates, float32 (rows, rows).

    The moments are U^T U with a lower triangular U. If e are the errors of all rows, products
    change by the length of the vector U e. Entry i of this vector is 0 if e[i] is minus the sum of
    U[i, j] / U[i, i] * e[j] over the earlier rows j. The diagonal of the moments is increased so
    that U exists.
    """
    import tensorflow as tf

    size = len(moments)
    damped = moments + np.eye(size) * (DAMPING * np.trace(moments) / size or 1.0)
    factor = tf.linalg.cholesky(damped[::-1, ::-1]).numpy()[::-1, ::-1].T
    return np.ascontiguousarray(factor / np.diag(factor)[:, None], "float32")


def row_rounding(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the float32 scale and the uint8 zero point for numbers from low <= 0 to high >= 0."""
    scale = (high - low) / 255 or 1.0
    return np.array(scale, "float32"), np.array(round(-low / scale), "uint8")
