"""A saved model: Keras model and tokenizers together, text to text or text to label, as a bundle.

Imports `search`, `models`, `inference` and everything below them.
"""
