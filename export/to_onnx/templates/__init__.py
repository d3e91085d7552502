"""Graphs around a model's layers that fit every model; `scripts/templates.py` converts them.

Imports `conversion` and `optimize` of `to_onnx`, and the library.
"""
