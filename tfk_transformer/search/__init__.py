"""Search and scoring with a model, as TensorFlow functions.

Imports `models`, `layers`, `tokenizers`, `inference` and everything below them.
"""
