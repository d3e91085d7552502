"""Folders of CTranslate2, and packages of Argos Translate, which contain one.

CTranslate2 itself is not required.

Imports `pipelines`, `models`, `hugging_face`, and `vocabulary`, `languages` and `imported` of this
package's parent.
"""
