"""Training from a recipe: data, compilation, `fit`, checkpoints and the bundle.

Imports `pipelines`, `data`, `models` and everything below them.
"""
