"""The formats of texts: files of lines, whose runs can be resumed, and documents.

Imports `text`, `config` and `atomic_write`.
"""
