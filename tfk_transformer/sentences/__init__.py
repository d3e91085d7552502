"""Texts as a model translates them: sentence by sentence, without characters that it cannot read.

Imports `constants`, and sentencex.
"""
