"""Translation on many machines with Apache Beam, in an environment with the extra [beam].

Imports `export/runtime/`, `formats`, `text` and the options of `apps/cli`.
"""
