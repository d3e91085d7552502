"""Where text pairs come from: parallel files, TFDS datasets, built-in number words.

Nothing here imports TensorFlow, Keras or TFDS until a `tfds:` source is asked for.
"""

from tfk_transformer.datasets.pairs import Pair, Report, Source
from tfk_transformer.datasets.specs import load

__all__ = ["Pair", "Report", "Source", "load"]
