"""The parts that every runtime shares, in NumPy: the interface of models, results, batches of
texts, streaming, scoring.

Imports `constants`, `config` and `tokenizers`, and never TensorFlow or Keras.
"""
