"""Translate documents: split them into sentences, and join the translations with the markup.

Imports NumPy, the packages of the extra `documents`, and `text` of this library.
"""
