"""Folders of CTranslate2, and packages of Argos Translate, which contain one.

CTranslate2 itself is not required.

Imports `pipelines`, `models`, and the modules of this package's parent other than `model_import`.
"""
