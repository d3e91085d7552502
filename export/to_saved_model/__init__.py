"""From a model to a SavedModel, and to the folders of TensorFlow Serving.

Imports the signatures and functions of `export`, and the library.
"""
