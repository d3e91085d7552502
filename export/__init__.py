"""Exporting and running models: SavedModel and ONNX. Installed as `tfk_transformer.export`."""

if __name__ != "tfk_transformer.export":
    # From the repository's root a bare `import export` would load the same files under a second name.
    raise ImportError("import this package as 'tfk_transformer.export', not 'export'.")
