"""SentencePiece tokenizers: encode texts as ids and decode ids, in Python and in TensorFlow.

Imports `constants` and `config`.
"""
