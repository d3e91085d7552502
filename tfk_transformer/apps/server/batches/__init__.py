"""The batches of the server: which texts of several requests the model runs together, and when.

Imports `config` and `inference`.
"""
