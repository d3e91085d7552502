"""The commands that make, convert and inspect models.

Imports every folder of the library, and the modules of `cli/` that all commands share.
"""
