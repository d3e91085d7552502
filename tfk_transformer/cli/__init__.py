"""The command line.

Imports everything, `export` included; nothing imports it.
"""
