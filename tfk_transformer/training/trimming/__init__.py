"""Trimming: vocabularies are cut to the pieces that texts use.

Imports `pipelines`, `tokenizers`, `config` and everything below them.
"""
