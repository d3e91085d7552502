"""Translate with an exported file. Requires numpy, onnxruntime and onnxruntime-extensions.

python scripts/onnx_translate.py translate.onnx 'forty-two' …
"""

import sys

import numpy as np
import onnxruntime
import onnxruntime_extensions

path, *texts = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
options.log_severity_level = 3  # only errors: onnxruntime warns about inputs with defaults
session = onnxruntime.InferenceSession(path, options)
translations, scores = session.run(
    ["translations", "scores"], {"text": np.array(texts, object), "n_best": np.array(2, "int32")}
)
for text, hypotheses, values in zip(texts, translations, scores, strict=True):
    print(text)
    for hypothesis, score in zip(hypotheses, values, strict=True):
        print(f"{score:.3f}\t{hypothesis}")
