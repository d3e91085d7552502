"""Models in the layouts of other libraries: CTranslate2, and MarianMT and M2M100 of Hugging Face.

Imports all of the library except `cli`, and no other part of `export/`.
"""
