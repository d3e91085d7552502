"""Terms whose translation is given: found in source texts, and forced into translations.

Imports `documents`, `config` and the modules of the library's root.
"""
