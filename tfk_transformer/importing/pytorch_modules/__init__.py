"""Modules of PyTorch that people copied: a table of names for each, and no other code.

Imports `pipelines`, `models`, and the modules of this package's parent other than `model_import`.
"""
