"""Write the operators of a model's layers from its configuration and weights.

Imports `conversion` of `to_onnx`, and the library.
"""
