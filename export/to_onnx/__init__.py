"""Convert models to ONNX graphs and files.

Imports `file_names` and `runtime` of `export`, and the library.
"""
