"""Encode text pairs as ids, and group them into batches for `model.fit`.

Imports `datasets`, `tokenizers` and everything below them.
"""
