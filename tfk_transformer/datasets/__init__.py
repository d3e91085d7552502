"""Sources of text pairs: parallel files, TFDS datasets, generated number words and sums.

Imports `config` and `text`. TensorFlow and TFDS are imported only for `tfds:` sources.
"""

from tfk_transformer.datasets.pairs import Pair, Report, Source
from tfk_transformer.datasets.specs import load

__all__ = ["Pair", "Report", "Source", "load"]
