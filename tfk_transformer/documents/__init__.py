"""Translate documents: split them into sentences, and join the translations with the markup.

Imports NumPy and the packages of the extra `documents`, and nothing of this library.
"""
