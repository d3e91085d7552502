"""Keras layers: masks, attention, encoder, decoder and their parts.

Imports `constants` and `config`.
"""
