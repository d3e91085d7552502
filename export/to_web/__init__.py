"""A folder that translates in a browser and in Node.

The folder has the page in `page/`, the npm packages that the page uses, and the files of a model.

Imports all of the library except `cli`, and of `export/` all but `exporting`.
"""
