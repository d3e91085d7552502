"""The commands of the first minutes: a project to start from, and a description of the machine.

Imports every folder of the library but the rest of `cli/`, of which it imports `arguments`.
"""
