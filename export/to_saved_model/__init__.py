"""Write SavedModels, and the folders of TensorFlow Serving.

Imports the signatures and functions of `export`, and the library.
"""
