"""Commands for getting started: create a project, and describe the machine.

Imports every folder of the library. Of `cli/`, imports only `arguments`.
"""
