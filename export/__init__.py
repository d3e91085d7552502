"""Models exported to SavedModel and ONNX, compared with Keras, and run. Installed as `tfk_transformer.export`.

Imports the library, all but `cli`.
"""

if __name__ != "tfk_transformer.export":
    # From the repository's root a bare `import export` would load the same files under a second name.
    raise ImportError("import this package as 'tfk_transformer.export', not 'export'.")
