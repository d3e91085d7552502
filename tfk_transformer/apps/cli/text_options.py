"""The options of the text commands. Their help texts are next to each command."""

from typing import Any

import typer

from tfk_transformer.apps.cli.arguments import OUTPUT


def option(panel: str, help: str, *flags: str, metavar: str | None = None, **settings: Any) -> Any:
    """Return an option in a panel of the help; without flags, it has the name of its argument."""
    return typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=panel, **settings)


def output_option(content: str) -> Any:
    """Return the option of the file for the results of a command, such as "labels"."""
    help = (
        f"The file for the {content}: plain, .gz or .zst. It is written as FILE.partial until it "
        "is complete. Default: standard output."
    )
    return option(OUTPUT, help, "--output", "-o", metavar="FILE")
