"""Model cards, and comparisons of imported models with the libraries that they are
from, which run in a process of their own.

Imports `pipelines`, `trimming`, `ctranslate2_folder`, `hugging_face`, and `model_paths` and
`vocabulary` of this package's parent.
"""
