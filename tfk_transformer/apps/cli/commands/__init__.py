"""The commands.

For a command such as `score`, a module has SCORE_EXAMPLES and `score_command`, a function (see
`help_of`) or a Typer group.

Imports every folder of the library, and the modules of `cli/` that all commands share.
"""
