"""The commands that draw pictures, in one group.

Imports every folder of the library, and the modules of `cli/` that all commands share.
"""
