"""The parser of Markdown, with the rules of its dialects.

Imports markdown-it-py and its plugins.
"""
