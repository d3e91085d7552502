"""What every runtime shares, in NumPy: results, batches of texts, streaming, scoring.

Imports `constants`, `config` and `tokenizers`, and never TensorFlow or Keras.
"""
