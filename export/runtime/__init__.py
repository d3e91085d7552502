"""Open and run exported files: ONNX with NumPy and onnxruntime, SavedModels with TensorFlow.

Imports `inference`, `tokenizers`, and `pipelines` to open bundles.
"""
