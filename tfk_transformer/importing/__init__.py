"""Import: models of other libraries become translators.

Each family declares its options and the names of its arrays and tokens.

Imports `pipelines`, `models`, `tokenizers` and everything below them.
"""
