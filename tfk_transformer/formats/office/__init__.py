"""Office files: ZIP archives whose XML is translated, and everything else is copied.

Imports `documents/items`, `reading`, and the packages of the extra `documents`.
"""
