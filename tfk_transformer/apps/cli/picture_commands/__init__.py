"""Commands that draw pictures, in one group, and the files that they write.

Imports everything else; each command imports the packages that it needs when it runs.
"""
