"""Texts without a model: sentences, kept characters, glossary terms, results, and refusals.

Imports `config` and `constants`, and sentencex.
"""
