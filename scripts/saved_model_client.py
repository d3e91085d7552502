"""Translate with a served SavedModel. Requires only Python.

python scripts/saved_model_client.py http://127.0.0.1:8501/v1/models/translator:predict 'forty-two'
…
"""

import json
import sys
import urllib.request

url, *texts = sys.argv[1:]
body = json.dumps({"signature_name": "serving_default", "inputs": {"text": texts}}).encode()
request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
with urllib.request.urlopen(request) as answer:
    outputs = json.load(answer)["outputs"]
for translation, score in zip(outputs["translation"], outputs["score"], strict=True):
    print(f"{float(score):.3f}\t{translation}")  # the score is NaN if the text is too long
