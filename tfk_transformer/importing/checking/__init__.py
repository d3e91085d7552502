"""Descriptions of imported models, and comparisons with the libraries that they are from.

Imports `pipelines`, `trimming`, `tokenizers`, `ctranslate2_folder`, `hugging_face`, and of the
modules of this package's parent `model_paths`, `token_lists` and `vocabulary`.
"""
