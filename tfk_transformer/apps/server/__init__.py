"""An HTTP server of one model: three protocols, dynamic batching, limits, metrics.

Imports `inference` and `config`. Needs the extra [serve]. ONNX files are served without TensorFlow.
"""
