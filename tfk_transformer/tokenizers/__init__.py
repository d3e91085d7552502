"""SentencePiece tokenizers: text to ids and back, in Python and in TensorFlow graphs.

Imports `constants` and `config`.
"""
