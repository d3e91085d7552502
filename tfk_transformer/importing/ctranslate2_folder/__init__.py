"""Folders of CTranslate2, which is not required, and packages of Argos Translate, which have one.

Imports `pipelines`, `models`, and the modules of this package's parent other than `model_import`.
"""
