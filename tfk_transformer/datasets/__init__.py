"""Where text pairs come from: parallel files, TFDS datasets, built-in number words.

Imports `config` only. TensorFlow and TFDS are imported when a `tfds:` source is asked for.
"""

from tfk_transformer.datasets.pairs import Pair, Report, Source
from tfk_transformer.datasets.specs import load

__all__ = ["Pair", "Report", "Source", "load"]
