"""The commands that run a model on texts.

Imports every folder of the library. Of `cli/`, imports only `arguments`, `main`, `progress`,
`record_options`, `text_lines` and `text_output`.
"""
