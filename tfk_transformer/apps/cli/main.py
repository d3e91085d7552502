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
    from contextvars import ContextVar
    from pathlib import Path
    from types import FrameType
    from typing import Annotated, Any

    import typer

    from tfk_transformer.apps.cli.help_pages import HelpfulCommand, HelpfulGroup, help_of
    from tfk_transformer.constants import __version__
    from tfk_transformer.runtime_environment import with_install_line
except KeyboardInterrupt:  # `main` handles Ctrl-C only after these imports
    sys.exit(130)

# The help line of each command, by panel of the help. The folder `commands` describes its modules.
COMMANDS = {
    "Getting started": {
        "new": "Create a small project to start from: recipe, data, fit script.",
        "doctor": "Show versions, hardware and installed packages, for a bug report.",
    },
    "Models": {
        "train": "Train a model on text pairs and write a bundle.",
        "distill": "Train a small student on the translations of teachers.",
        "import": "Convert a model from another library to a bundle.",
        "ensemble": "Combine several bundles into one ensemble.",
        "trim": "Cut a bundle's vocabulary to the pieces that your texts use.",
        "export": "Export a bundle to SavedModel, ONNX and other formats.",
        "inspect": "Describe a model file or folder, or compare two.",
    },
    "Texts": {
        "translate": "Translate sentences with a bundle, a SavedModel or an ONNX file.",
        "translate-document": "Translate documents and folders of them, and keep their markup.",
        "classify": "Classify texts with a bundle, a SavedModel or an ONNX file.",
        "score": "Print the log-probability of given translations.",
        "serve": "Serve a model over HTTP.",
        "evaluate": "Measure BLEU, chrF, exact match and speed.",
    },
    "Pictures": {"plot": "Draw attention, alignments, training runs and models."},
}
PACKAGE = "tfk_transformer.apps.cli.commands"
MODULES = {  # of commands whose module has another name
    **dict.fromkeys(("import", "ensemble", "trim"), "bundles"),
    **dict.fromkeys(("score", "evaluate"), "quality"),
    "distill": "train",
}
# Errors whose messages are written for the user.
USER_ERRORS = (ValueError, OSError, ImportError, FloatingPointError)
USAGE_ERROR: Any = typer.BadParameter.__base__  # Typer does not export it
INTERRUPTED = 130  # the exit status after Ctrl-C
EXAMPLES = """
tfk-transformer new project
cd project
tfk-transformer train recipe.toml --out bundle
tfk-transformer export bundle --out files
tfk-transformer translate files/translate.onnx
"""


_command: ContextVar[typer.Context] = ContextVar("command")  # the command that runs


class _LockingCommand(HelpfulCommand):
    """A command whose context has the locks of `lock_output`, until it ends."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        _command.set(ctx)
        return super().invoke(ctx)


def lock_output(path: Path | None, option: str) -> None:
    """Lock a file or folder that the command will write, until it ends; no pipes and devices.

    Otherwise, a second command could replace the file that the first one has just finished.
    """
    from tfk_transformer.atomic_write import lock

    if path is not None and (path.is_file() or path.is_dir() or not path.exists()):
        _command.get().with_resource(lock(path, option))


class _LazyCommands(HelpfulGroup):
    """A group whose commands are placeholders with a help line until one of them is run."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
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


def _imported(name: str) -> Any:
    """Return a command or a group of commands with its help, imported from its module."""
    words = name.replace("-", "_")
    module = importlib.import_module(f"{PACKAGE}.{MODULES.get(name, words)}")
    command = getattr(module, f"{words}_command")
    examples = getattr(module, f"{words.upper()}_EXAMPLES")
    group = command
    if not isinstance(command, typer.Typer):
        group = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        group.command(name, epilog=examples)(command)
    group.info.cls = HelpfulGroup
    group.info.epilog = examples
    for info in group.registered_commands:
        info.cls = _LockingCommand
        info.help = help_of(info.callback)
        if group is command:
            # The examples of this command, each with the comment before it.
            start = re.escape(f"tfk-transformer {name} {info.name} ")
            info.epilog = "\n".join(re.findall(rf"(?m)^(?:#.*\n)?{start}.*$", examples))
    return typer.main.get_command(group)


def _print_version(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


VERSION = typer.Option(
    "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
)


@app.callback()
def _common(version: Annotated[bool, VERSION] = False) -> None: ...


_ctrl_c = threading.Event()  # set by Ctrl-C

# Placeholders, which `_LazyCommands` replaces when a command runs.
for _panel, _commands in COMMANDS.items():
    for _name, _help in _commands.items():
        app.command(_name, help=_help, rich_help_panel=_panel)(lambda: None)


def main() -> None:
    """Run the command line; an invalid input is one line on standard error, and status 1."""
    _open_standard_streams()
    for name in ("COLUMNS", "LINES"):  # rich prints nothing on 0 columns, and fails on "²"
        if not re.fullmatch(r"[1-9][0-9]{0,5}", os.environ.get(name, "1")):
            del os.environ[name]
    _ctrl_c.clear()
    # A program in the background ignores Ctrl-C. Only the main thread can set a handler.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, _interrupt)
    sys.excepthook = _print_traceback
    try:
        status: int = typer.main.get_command(app)(standalone_mode=False) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:
        status = INTERRUPTED if _ctrl_c.is_set() else _print_failure(error)
    if status == INTERRUPTED:
        # Libraries may abort if they are interrupted again while they end.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(status)


def _open_standard_streams() -> None:
    """Open the standard streams that are closed, and let the output contain all characters."""
    if sys.stdin is None:  # empty
        sys.stdin = open(os.open(os.devnull, os.O_RDONLY), encoding="utf-8", closefd=False)
    if sys.stdout is None:  # not writable: an error, as in other programs
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


def _print_failure(error: Exception) -> int:
    """Print an error, and return the exit status; raise one that is not written for the user."""
    if isinstance(error, USAGE_ERROR):
        message = error.format_message()
        if message and error.ctx is not None:
            print(error.ctx.get_usage(), file=sys.stderr)
            message += f" Try '{error.ctx.command_path} --help' for help."
        if message:  # without arguments, the help was printed
            print_error(ValueError(message))
        return 2
    if not isinstance(error, USER_ERRORS):
        raise error
    if isinstance(error, OSError):
        try:
            sys.stdout.flush()
        except OSError:  # discard what cannot be written, also at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):  # the reader of the output has ended
        print_error(error)
    return 1


def _print_traceback(*error: Any) -> None:
    """Print an unexpected error; its message may contain any text."""
    from traceback import format_exception

    from tfk_transformer.config.words import escape_controls

    sys.stderr.write(escape_controls("".join(format_exception(*error))))


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
