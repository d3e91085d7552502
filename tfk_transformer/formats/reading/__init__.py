"""Parse documents of each format into items.

Imports `documents/items` and `documents/results`, and the packages of the extra `documents`.
"""
