"""Documents of each format, read as items.

Imports `documents/items`, and the packages of the extra `documents`.
"""
