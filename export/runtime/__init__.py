"""Exported files opened and run: ONNX with NumPy and onnxruntime, SavedModels with TensorFlow.

Imports `inference`, `tokenizers`, and `pipelines` to open bundles.
"""
