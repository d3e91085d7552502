"""Write SavedModels, and the folders of TensorFlow Serving.

Imports `formats` of `export`, and the library.
"""
