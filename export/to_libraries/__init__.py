"""Models in the layouts of other libraries: the folders of CTranslate2 and of MarianMT of Hugging
Face.

Imports all of the library except `cli`, and no other part of `export/`.
"""
