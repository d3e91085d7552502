"""Import: models of other libraries become translators.

Each family declares its options and the names of its arrays and tokens; `weights`, `vocabulary` and
`imported` make a configuration, weights and tokenizers of them.

Imports `pipelines`, `models`, `tokenizers` and everything below them.
"""
