"""Keras models made of the layers: encoder-decoder, decoder only, classifier.

Imports `layers`, `losses`, `config` and everything below them.
"""
