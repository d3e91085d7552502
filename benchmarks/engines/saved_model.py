"""The SavedModel's signature `generate`, on TensorFlow."""

import tensorflow as tf

from engines.batches import Search, own_settings, padded_batches, unpadded
from tfk_transformer.export.runtime.saved_model_runtime import SavedModelTranslator


class Engine:
    """See the package."""

    version = f"TensorFlow {tf.__version__}"

    def __init__(self, path: str, threads: int):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        self.model = SavedModelTranslator(path)

    def prepare(self, rows):
        """Leave lists of ids as they are: padding them is timed."""
        return rows

    def translate(self, rows, search: Search):
        """Run one batch after the other."""
        settings = own_settings(search)
        return [
            self.model.generate(ids, **settings)[0][:, 0]
            for ids in padded_batches(rows, search.batch_size)
        ]

    def read(self, found):
        """Return lists of ids."""
        return unpadded(found)
