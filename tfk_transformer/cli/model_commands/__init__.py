"""The commands that make, convert and inspect models.

Imports every folder of the library but the rest of `cli/`, of which it imports `arguments`, `main`
and `progress`.
"""
