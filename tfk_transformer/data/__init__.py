"""Encode text pairs as ids, and group them into batches for `model.fit`.

Imports `datasets`, `tokenizers` and what is below them.
"""
