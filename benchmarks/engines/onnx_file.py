"""A `generate.onnx` or one of its profiles, on onnxruntime."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime

from tfk_transformer.config.search_settings import resolve_settings, setting_arrays
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.export.runtime.sessions import OnnxFile
from tfk_transformer.inference.runtime import are_small


class Engine:
    """A loaded file, which translates `at_once` batches in parallel."""

    version = f"onnxruntime {onnxruntime.__version__}"

    def __init__(self, threads: int, path: str, at_once: int = 1):
        self._at_once, self._threads = at_once, threads // at_once
        self._file = OnnxFile(path)
        self._file.session(self._threads, small=True)

    def prepare(self, rows, beam_size: int, batch_size: int, max_length: int):
        """Choose the session. Padding the rows is timed, as in the peers."""
        given = {
            "beam_size": beam_size,
            "n_best": 1,
            "length_penalty": 0.0,
            "max_length": max_length,
            "max_length_factor": float(max_length),  # the peers' limit is independent of the source
        }
        rules = self._file.metadata["search"]
        settings = setting_arrays(resolve_settings(given, rules), rules)
        small = are_small(len(rows), batch_size, beam_size)
        return rows, batch_size, settings, self._file.session(self._threads, small)

    def run(self, inputs):
        """Run batches one by one, or some in parallel with the longest first."""
        rows, batch_size, settings, session = inputs
        batches = list(padded_batches(rows, batch_size))[::-1]
        with ThreadPoolExecutor(self._at_once) as threads:
            run = threads.map if self._at_once > 1 else map
            ids = run(lambda s: session.run(["ids"], {"source_ids": s, **settings})[0], batches)
            return list(ids)[::-1]

    def result(self, outputs):
        """Return lists of ids, each up to its end."""
        rows = [row for batch in outputs for row in batch[:, 0].tolist()]
        stops = (PAD_ID, END_ID)
        ends = (next((i for i, t in enumerate(row) if t in stops), len(row)) for row in rows)
        return [row[:end] for row, end in zip(rows, ends, strict=True)]


def padded_batches(rows: list[list[int]], size: int) -> Iterator[np.ndarray]:
    """Yield int32 (up to `size`, S), padded at the end."""
    for first in range(0, len(rows), size):
        batch = rows[first : first + size]
        ids = np.full((len(batch), max(map(len, batch))), PAD_ID, "int32")
        for padded, row in zip(ids, batch, strict=True):
            padded[: len(row)] = row
        yield ids
