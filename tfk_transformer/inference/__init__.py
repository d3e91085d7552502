"""The NumPy code that all runtimes share: interfaces, results, batching, streaming and scoring.

Imports `constants`, `config` and `tokenizers`, and never TensorFlow or Keras.
"""
