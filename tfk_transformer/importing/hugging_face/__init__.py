"""Models in the layout of Hugging Face: the families, and modules that they share.

Imports `pipelines`, `models`, and the modules of this package's parent other than `model_import`.
"""
