"""`tfk-transformer translate` at a terminal: the user types sentences and reads translations."""

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfk_transformer.apps.cli.arguments import named_value
from tfk_transformer.apps.cli.main import print_error
from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.config.setting_values import setting_text
from tfk_transformer.config.words import nearest

if TYPE_CHECKING:
    from tfk_transformer.inference.base_translator import BaseTranslator

PROMPT = "> "
HELP = (
    "Type a text and press Enter. :set NAME=VALUE changes a search setting, :set lists the "
    "settings, :quit or Ctrl-D ends."
)
CHAT_COMMANDS = (":help", ":set", ":quit")
ALWAYS_SHOWN = ("beam_size", "n_best")  # settings that ":set" shows even with their defaults
NOT_SHOWN = ("glossary", "split_sentences", "language")  # arguments that are not search settings


def is_interactive(text: list[str] | None, input: Path | None, output: Path | None) -> bool:
    """Return whether a user types the sentences and reads the translations at a terminal."""
    return (
        not text and input is None and output is None and sys.stdin.isatty() and sys.stdout.isatty()
    )


def converse(
    translator: "BaseTranslator", settings: dict[str, Any], prefix: str | None, stream: bool
) -> None:
    """Translate the typed lines until the end of the input.

    `settings` are arguments of `translate`, which `:set` changes. With `stream`, each translation
    is printed token by token.
    """
    # Windows has no readline, but its console has a history.
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # gives `input` its history and its keys
    print(HELP)
    while True:
        try:
            line = input(PROMPT).strip()
            if line == ":quit":
                return
            if line.startswith(":"):
                settings = _run_command(line, translator, settings)
            elif line:
                _print_translation(line, translator, settings, prefix, stream)
        except EOFError:  # Ctrl-D
            print()
            return
        except KeyboardInterrupt:  # cancels the line or its translation
            print()
        except ValueError as error:
            print_error(error)


def _run_command(
    line: str, translator: "BaseTranslator", settings: dict[str, Any]
) -> dict[str, Any]:
    """Run a line that begins with a colon, and return the new settings."""
    command, _, rest = line.partition(" ")
    if command == ":help":
        print(HELP)
    elif command == ":set" and not rest:
        rules = translator.runtime.rules
        values = {**{name: rules[name]["default"] for name in ALWAYS_SHOWN}, **settings}
        shown = {name: value for name, value in values.items() if name not in NOT_SHOWN}
        print(" ".join(f"{name}={setting_text(value)}" for name, value in shown.items()))
    elif command == ":set":
        name, value = named_value(rest.strip(), ":set", ":set beam_size=4")
        changed = {**settings, name: value}
        translator.translate([], **changed)  # checks the settings
        return changed
    else:
        raise ValueError(
            f"expected {', '.join(CHAT_COMMANDS)} or a sentence, got "
            f"'{command}'.{nearest(command, CHAT_COMMANDS)}"
        )
    return settings


def _print_translation(
    text: str,
    translator: "BaseTranslator",
    settings: dict[str, Any],
    prefix: str | None,
    stream: bool,
) -> None:
    if stream:
        for part in translator.stream(text, **settings):
            print_line(part, sys.stdout, end="")
        print()
        return
    (translation,) = translator.translate([text], prefixes=[prefix] if prefix else None, **settings)
    several = len(translation.hypotheses) > 1
    for hypothesis in translation.hypotheses:
        score = f"{hypothesis.score:9.4f}  " if several else ""
        print_line(f"{score}{hypothesis.text}", sys.stdout)
