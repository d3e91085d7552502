"""Text pairs to batches of ids for `model.fit`.

Imports `datasets`, `tokenizers` and what is below them.
"""
