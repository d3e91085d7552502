"""The command line `tfk-transformer`: one module for each command, imported when the command runs.

Imports every other folder of the library; no other folder imports it.
"""
