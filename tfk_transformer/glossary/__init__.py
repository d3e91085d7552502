"""Glossaries: find their terms in source texts, and force the translations of the terms.

Imports `documents`, `config` and the modules of the library's root.
"""
