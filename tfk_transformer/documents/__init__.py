"""Whole documents: read as sentences, translated by a given function, and put together again with
their markup.

Imports NumPy and the packages of the extra `documents`, and nothing of this library.
"""
