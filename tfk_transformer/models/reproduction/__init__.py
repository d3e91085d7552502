"""What is needed to make a model again: its class, its arguments and its plain weights.

Imports `keras_internals`, `models/configured_model` and `models/token_model`.
"""
