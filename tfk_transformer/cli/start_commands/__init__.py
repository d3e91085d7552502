"""The commands to get started: a new project, and a description of the machine.

Imports every folder of the library. Of `cli/`, imports only `arguments`.
"""
