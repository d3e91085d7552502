"""Keras layers: masks, attention, encoder, decoder and what they are made of.

Imports `constants` and `config`.
"""
