"""The entry point of the command line.

Commands are imported when they run, so that `--help` is fast.
"""

import errno
import importlib
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tfk_transformer.cli.help_pages import HelpfulCommand, HelpfulGroup
from tfk_transformer.constants import __version__
from tfk_transformer.runtime_environment import with_install_line

if TYPE_CHECKING:
    # Typer has Click inside since 0.26; only type checkers read this line.
    from typer._click import Command, Context

# The help line of each command, by folder and name. The folder contains a module for each command,
# with EXAMPLES and `command`, a function or a Typer group.
COMMANDS = {
    "start_commands": {
        "new": "Create a small project to start from: recipe, data, fit script.",
        "doctor": "Show versions, hardware and installed packages, for a bug report.",
    },
    "model_commands": {
        "train": "Train a model on text pairs and write a bundle.",
        "distill": "Train a small student on the translations of teachers.",
        "import": "Convert a model from another library to a bundle.",
        "ensemble": "Combine several bundles into one ensemble.",
        "export": "Export a bundle to SavedModel, ONNX and other formats.",
        "inspect": "Describe a model file or folder, or compare two.",
    },
    "text_commands": {
        "translate": "Translate sentences with a bundle, a SavedModel or an ONNX file.",
        "translate-document": "Translate a plain text, a Markdown file or an HTML page.",
        "classify": "Classify texts with a bundle, a SavedModel or an ONNX file.",
        "score": "Print the log-probability of given translations.",
        "serve": "Serve a model over HTTP.",
        "evaluate": "Measure BLEU, chrF, exact match and speed.",
    },
    "picture_commands": {
        "plot": "Draw attention, alignments, training runs and models.",
    },
}
PANELS = {  # titles in the help
    "start_commands": "Getting started",
    "model_commands": "Models",
    "text_commands": "Texts",
    "picture_commands": "Pictures",
}
# The other modules have the names of their commands.
MODULES = {"import": "import_model", "translate-document": "translate_document"}
# Errors whose messages are written for the user.
USER_ERRORS = (ValueError, OSError, ImportError, FloatingPointError)
EXAMPLES = """
tfk-transformer new numbers
cd numbers
tfk-transformer train recipe.toml --out bundle
tfk-transformer export bundle --out files
tfk-transformer translate files/translate.onnx
"""


class _LazyCommands(HelpfulGroup):
    """A group whose commands are placeholders with a help line until one of them is run."""

    def resolve_command(
        self, ctx: "Context", args: list[str]
    ) -> "tuple[str | None, Command | None, list[str]]":
        """Return the named command, imported from its module."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, _imported(name) if name else command, rest


app = typer.Typer(
    name="tfk-transformer",
    help=(
        "Train encoder-decoder Transformers with Keras, export them to SavedModel and ONNX, and "
        "translate with any of these.\n\n"
        "`tfk-transformer COMMAND --help` explains a command. Exit status: 0 success, 1 invalid "
        "input or another failure (the message explains it), 2 invalid options, 130 interrupted "
        "by Ctrl-C."
    ),
    epilog=EXAMPLES,
    cls=_LazyCommands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
)


def _imported(name: str) -> "Command":
    """Return a command, or a group of commands, imported from its module."""
    folder = next(folder for folder, commands in COMMANDS.items() if name in commands)
    module = importlib.import_module(f"tfk_transformer.cli.{folder}.{MODULES.get(name, name)}")
    if isinstance(module.command, typer.Typer):
        group = module.command
        group.info.cls = HelpfulGroup
        group.info.epilog = module.EXAMPLES
        for command in group.registered_commands:
            command.cls = HelpfulCommand
            # The examples of this command, each with the comment before it.
            words = re.escape(f"tfk-transformer {name} {command.name} ")
            command.epilog = "\n".join(re.findall(rf"(?m)^(?:#.*\n)?{words}.*$", module.EXAMPLES))
        return typer.main.get_command(group)
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, cls=HelpfulCommand, epilog=module.EXAMPLES)(module.command)
    return typer.main.get_command(single)


def _print_version(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


# Placeholders, which `_LazyCommands` replaces when a command runs.
for _folder, _commands in COMMANDS.items():
    for _name, _help in _commands.items():
        app.command(_name, help=_help, rich_help_panel=PANELS[_folder])(lambda: None)


def main() -> None:
    """Run the command line.

    If an input is invalid, the program prints one line to standard error and exits with status 1.
    """
    try:
        app()
    except USER_ERRORS as error:
        print_error(error)
        sys.exit(1)


def print_error(error: Exception) -> None:
    """Print an error as one line to standard error."""
    from rich.console import Console
    from rich.markup import escape

    if isinstance(error, ImportError):
        error = with_install_line(error)
    line = escape(" ".join(str(error).split()))
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        line += "; free some space on the output's disk, and run the command again"
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {line}")
