"""Graphs around a model's layers that fit every model, converted from TensorFlow at build time.

Imports `conversion`, `simplify`, `optimize`, the signatures and functions of `export`, and the
library.
"""
