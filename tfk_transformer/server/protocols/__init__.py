"""The protocols of the server, one module each: paths, bodies and answers.

Imports the other modules of `server`.
"""
