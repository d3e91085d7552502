"""Model and tokenizers together: text to text, or text to label, saved and loaded as a bundle.

Imports `generation`, `models`, `inference` and everything below them.
"""
