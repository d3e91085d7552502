"""Fine-tuning: the bundle that a training run starts from, and the weights that it does not change.

Imports `pipelines`, `data`, `models`, `tokenizers` and everything below them.
"""
