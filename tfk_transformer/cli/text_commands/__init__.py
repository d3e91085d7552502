"""The commands that run a model on texts.

Imports every folder of the library but the rest of `cli/`, of which it imports `arguments`, `main`,
`progress`, `text_lines` and `text_output`.
"""
