"""The commands that make, convert and inspect models.

Imports every folder of the library. Of `cli/`, imports only `arguments`, `main` and `progress`.
"""
