"""Convert models to ONNX graphs and files.

Imports `runtime`, the signatures and functions of `export`, and the library.
"""
