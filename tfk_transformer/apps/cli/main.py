"""The entry point of the command line.

Commands are imported when they run, so that `--help` is fast.
"""

import sys

try:
    import contextlib
    import errno
    import importlib
    import io
    import os
    import re
    import signal
    import threading
    from types import FrameType, TracebackType
    from typing import TYPE_CHECKING, Annotated, Any

    import typer

    from tfk_transformer.apps.cli.help_pages import HelpfulCommand, HelpfulGroup, help_of
    from tfk_transformer.constants import __version__
    from tfk_transformer.runtime_environment import with_install_line
except KeyboardInterrupt:  # `main` handles Ctrl-C only after these imports
    sys.exit(130)

if TYPE_CHECKING:
    # Typer has Click inside since 0.26; only type checkers read this line.
    from typer._click import Command, Context

# The help line of each command, by folder and name. The folder contains a module for each command,
# with EXAMPLES and `command`, a function (see `help_of`) or a Typer group.
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
        "trim": "Cut a bundle's vocabulary to the pieces that your texts use.",
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
# The base class of errors of the command line, which Typer does not export.
USAGE_ERROR: Any = typer.BadParameter.__base__
INTERRUPTED = 130  # the exit status after Ctrl-C
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
    module = importlib.import_module(f"tfk_transformer.apps.cli.{folder}.{MODULES.get(name, name)}")
    group = module.command
    if not isinstance(group, typer.Typer):
        group = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        group.command(name, epilog=module.EXAMPLES)(module.command)
    group.info.cls = HelpfulGroup
    group.info.epilog = module.EXAMPLES
    for command in group.registered_commands:
        command.cls = HelpfulCommand
        command.help = help_of(command.callback)
        if group is module.command:
            # The examples of this command, each with the comment before it.
            words = re.escape(f"tfk-transformer {name} {command.name} ")
            command.epilog = "\n".join(re.findall(rf"(?m)^(?:#.*\n)?{words}.*$", module.EXAMPLES))
    return typer.main.get_command(group)


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


_ctrl_c = threading.Event()  # set by Ctrl-C

# Placeholders, which `_LazyCommands` replaces when a command runs.
for _folder, _commands in COMMANDS.items():
    for _name, _help in _commands.items():
        app.command(_name, help=_help, rich_help_panel=PANELS[_folder])(lambda: None)


def main() -> None:
    """Run the command line; an invalid input is one line on standard error, and status 1."""
    _open_standard_streams()
    _ctrl_c.clear()
    # A program in the background ignores Ctrl-C. Only the main thread can set a handler.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, _interrupt)
    sys.excepthook = _print_traceback
    sys.exit(_run())


def _open_standard_streams() -> None:
    """Open the standard streams that are closed, and let the output contain all characters.

    A closed input is empty. Writing to a closed output is an error, as in other programs.
    """
    if sys.stdin is None:
        sys.stdin = open(os.open(os.devnull, os.O_RDONLY), encoding="utf-8", closefd=False)
    if sys.stdout is None:  # not writable
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Files are UTF-8 in every environment. A terminal may have fewer characters.
        encoding = sys.stdout.encoding if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, and note it: libraries may turn it into another error."""
    _ctrl_c.set()
    raise KeyboardInterrupt


def _run() -> int:
    """Run a command, print its error if it fails, and return the exit status."""
    try:
        status: int = typer.main.get_command(app)(standalone_mode=False) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:
        if not _ctrl_c.is_set():
            return _print_failure(error)
        status = INTERRUPTED
    if status == INTERRUPTED:
        # Libraries may abort if they are interrupted again while they end.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return status


def _print_failure(error: Exception) -> int:
    """Print an error that ends the program, and return the exit status.

    An error whose message is not written for the user is raised again.
    """
    if isinstance(error, USAGE_ERROR):
        _print_usage_error(error)
        return 2
    if not isinstance(error, USER_ERRORS):
        raise error
    if isinstance(error, OSError):
        _discard_unwritten_output()
    if not isinstance(error, BrokenPipeError):  # the reader of the output has ended
        print_error(error)
    return 1


def _discard_unwritten_output() -> None:
    """Discard the buffer of standard output if it cannot be written, also not at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_usage_error(error: Any) -> None:
    """Print the usage of the command, and an error of the command line."""
    message = error.format_message()
    if not message:  # without arguments, the help was printed
        return
    if error.ctx is not None:
        print(error.ctx.get_usage(), file=sys.stderr)
        message += f" Try '{error.ctx.command_path} --help' for help."
    print_error(ValueError(message))


def _print_traceback(
    error_type: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Print an unexpected error; its message may contain any text."""
    from traceback import format_exception

    from tfk_transformer.config.words import escape_controls

    sys.stderr.write(escape_controls("".join(format_exception(error_type, error, traceback))))


def print_error(error: Exception) -> None:
    """Print an error as one line to standard error."""
    from rich.console import Console
    from rich.text import Text

    from tfk_transformer.config.words import escape_controls

    if isinstance(error, ImportError):
        error = with_install_line(error)
    line = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        line += "; free some space on the output's disk, and run the command again"
    if isinstance(error, io.UnsupportedOperation):
        line = "standard output is closed; redirect it to a file or to /dev/null"
    shown = Text.assemble(("error:", "bold red"), f" {escape_controls(line)}")
    Console(stderr=True, soft_wrap=True).print(shown)
