"""Models in the layout of Hugging Face: a module for each family, and modules that families share.

Imports `pipelines`, `models`, and `vocabulary`, `languages` and `imported` of this package's
parent.
"""
