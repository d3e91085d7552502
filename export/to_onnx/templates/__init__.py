"""Graphs around a model's layers that fit every model, converted from TensorFlow at build time.

Imports `conversion` and `optimize` of `to_onnx`, and the library.
"""
