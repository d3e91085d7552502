"""Translation on many machines with Apache Beam. Needs the extra [beam] in an environment of its
own.

Imports `export/runtime/`, `text_files`, `inference` and the options of `cli`.
"""
