"""Descriptions of imported models, and comparisons with the libraries that they are from.

Imports `pipelines`, `trimming`, `ctranslate2_folder`, `hugging_face`, `model_paths`, `vocabulary`.
"""
