"""Distillation: a student learns from the translations of teachers.

Imports `training`, `datasets`, `inference` and everything below them.
"""
