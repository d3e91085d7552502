"""Import: models of other libraries become translators.

Imports `pipelines`, `models`, `tokenizers` and everything below them.
"""
