"""Modules of PyTorch that people copied: a table of names for each, and no other code.

Imports `ctranslate2_folder`, `hugging_face`, `models`, and the modules of this package's parent
other than `model_import`.
"""
