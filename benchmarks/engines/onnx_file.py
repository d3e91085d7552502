"""A `generate.onnx` of any profile, on onnxruntime."""

import onnxruntime

from engines.batches import Search, own_settings, padded_batches, unpadded
from tfk_transformer.export.runtime import open_session, read_metadata, scalar_inputs


class Engine:
    """See the package."""

    version = f"onnxruntime {onnxruntime.__version__}"

    def __init__(self, path: str, threads: int):
        self.session = open_session(path, threads)
        self.rules = read_metadata(self.session, path)["search"]

    def prepare(self, rows):
        """Leave lists of ids as they are: padding them is timed."""
        return rows

    def translate(self, rows, search: Search):
        """Run one batch after the other."""
        settings = scalar_inputs(own_settings(search), self.rules)
        batches = padded_batches(rows, search.batch_size)
        return [self.session.run(["ids"], {"source_ids": ids, **settings})[0][:, 0] for ids in batches]

    def read(self, found):
        """Return lists of ids."""
        return unpadded(found)
