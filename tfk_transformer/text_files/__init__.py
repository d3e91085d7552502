"""Read plain or compressed files of lines as streams, and write them so that runs can be resumed.

Imports `atomic_write` only.
"""
