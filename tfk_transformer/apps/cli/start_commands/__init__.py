"""Commands for getting started: create a project, and describe the machine.

Imports `datasets`, and the modules of `cli/` that all commands share.
"""
