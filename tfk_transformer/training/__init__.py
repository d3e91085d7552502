"""Training from a recipe: data, compilation, `fit`, checkpoints, bundle.

Imports `pipelines`, `data`, `models` and what is below them.
"""
