"""Translation on many machines with Apache Beam. Needs the extra [beam] in an environment of its
own.

Imports `export/runtime/`, `formats`, `text` and the options of `apps/cli`.
"""
