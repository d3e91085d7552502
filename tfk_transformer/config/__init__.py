"""Configuration records: options of layers and models, search settings, presets.

Imports `constants` only.
"""
