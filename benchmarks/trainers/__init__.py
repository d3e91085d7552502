"""Engines that train, as `worker` describes them; see `trainer`.

`torch_steps` needs only NumPy and PyTorch, not this project. The others need Keras and this
project.
"""
