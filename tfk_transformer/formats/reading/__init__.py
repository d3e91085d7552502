"""Parse documents of each format into items.

Imports `documents/items` and `text`, and the packages of the extra `documents`.
"""
