"""Models in the layout of Hugging Face: a module for each family, and modules that families share.

Imports `pipelines`, `models`, and `vocabulary`, `languages`, `imported` and `text_prefix` of this
package's parent.
"""
