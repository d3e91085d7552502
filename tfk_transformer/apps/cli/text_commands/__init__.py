"""The commands that run a model on texts.

Imports every folder of the library, and the modules of `cli/` that all commands share.
"""
