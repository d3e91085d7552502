"""Files of strings for localization: gettext PO, XLIFF, JSON, ARB and tables.

Imports `documents/items` and `text`, and the packages of the extra `documents`.
"""
