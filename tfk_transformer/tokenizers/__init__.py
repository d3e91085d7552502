"""SentencePiece tokenizers: encode texts as ids and decode them, in Python and in TensorFlow
functions.

Imports `constants` and `config`.
"""
