"""The confidence of translations: the estimated probability that they are right.

Imports `config` and the modules of the library's root. `fitting` also imports numpy and sacreBLEU.
"""
