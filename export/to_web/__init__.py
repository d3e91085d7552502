"""A folder that translates in a browser and in Node: the page in `page/`, the npm packages that it
runs on, and the files of a model.

Imports all of the library except `cli`, and of `export/` all but `exporting`.
"""
