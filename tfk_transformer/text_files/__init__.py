"""Files of lines, plain or compressed, that are read as streams and written so that an interrupted
run can continue.

Imports `atomic_write` only.
"""
