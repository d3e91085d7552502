"""The protocols of the server, with paths, bodies and answers, and its pages for browsers.

Imports the other modules of `server`.
"""
