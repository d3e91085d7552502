"""A `generate.onnx` of any profile, on onnxruntime."""

from concurrent.futures import ThreadPoolExecutor

import onnxruntime

from engines.batches import Search, own_settings, padded_batches, unpadded
from tfk_transformer.config.search_settings import resolve_settings, setting_arrays
from tfk_transformer.export.runtime.sessions import OnnxFile
from tfk_transformer.inference.runtime import are_small


class Engine:
    """See the package."""

    version = f"onnxruntime {onnxruntime.__version__}"

    def __init__(self, path: str, threads: int, at_once: str = "1"):
        self.at_once = int(at_once)
        self.threads = threads // self.at_once
        self.file = OnnxFile(path)
        self.file.session(self.threads, small=True)
        self.rules = self.file.metadata["search"]

    def prepare(self, rows):
        """Leave lists of ids as they are: padding them is timed."""
        return rows

    def translate(self, rows, search: Search):
        """Run one batch after the other, or some side by side: the longest first, as
        `OnnxTranslator` does.
        """
        settings = setting_arrays(resolve_settings(own_settings(search), self.rules), self.rules)
        session = self.file.session(
            self.threads, are_small(len(rows), search.batch_size, search.beam_size)
        )
        batches = list(padded_batches(rows, search.batch_size))[::-1]
        with ThreadPoolExecutor(self.at_once) as threads:
            run = threads.map if self.at_once > 1 else map
            found = run(
                lambda ids: session.run(["ids"], {"source_ids": ids, **settings})[0][:, 0], batches
            )
            return list(found)[::-1]

    def read(self, found):
        """Return lists of ids."""
        return unpadded(found)
