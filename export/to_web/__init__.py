"""A folder that translates in a browser and in Node: the page in `page/`, the npm packages that it runs on, and a description of the model.

Imports all of the library except `cli`, and no other part of `export/` but `parity` and `file_names`.
"""
