"""Distillation: a student learns what teachers translate.

Imports `training`, `datasets`, `inference` and everything below them.
"""
