"""`tfk-transformer translate`: lines of texts, or texts that a user types at a terminal."""

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tfk_transformer.apps.cli import arguments, processing
from tfk_transformer.apps.cli.arguments import INPUT, OUTPUT, SEARCH, open_translator, option
from tfk_transformer.apps.cli.main import print_error
from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.config.setting_values import setting_text
from tfk_transformer.config.words import nearest
from tfk_transformer.formats import registry
from tfk_transformer.formats.compression import check_compression
from tfk_transformer.formats.lines import Line, Texts, one_line
from tfk_transformer.formats.output_file import OutputFile, content_digest, unfinished_run
from tfk_transformer.text.languages import language_code
from tfk_transformer.text.outcome import Outcome, Refused, TextError, check_texts

if TYPE_CHECKING:
    from tfk_transformer.inference.base_translator import BaseTranslator
    from tfk_transformer.text.results import Translation

TRANSLATE_EXAMPLES = """
# Type texts, and read each translation immediately.
tfk-transformer translate numbers-files/translate.onnx
tfk-transformer translate numbers-files/translate.onnx 'forty-two' 'seven'
# A text of two sentences.
tfk-transformer translate numbers-files/translate.onnx 'forty-two. seven.'
tfk-transformer translate numbers -i numbers.en -o numbers.out
# The three best translations with their scores.
tfk-transformer translate numbers 'forty-two' --setting n_best=3
"""

FIELD = (
    f"The {registry.parts_of('--input')}, that contains the texts. A number selects a column of a "
    "table without a header."
)
OUTPUT_FIELD = f"The {registry.parts_of('--output')}, for the translations."
BEAM_SIZE = f"{arguments.HELP['beam_size'].removesuffix('.')}; 1 with --stream."
PROMPT = "> "
CHAT_HELP = (
    "Type a text and press Enter. :set NAME=VALUE changes a search setting, :set lists the "
    "settings, :quit or Ctrl-D ends."
)
CHAT_COMMANDS = (":help", ":set", ":quit")
ALWAYS_SHOWN = ("beam_size", "n_best")  # settings that ":set" shows even with their defaults
NOT_SHOWN = ("glossary", "split_sentences", "language")  # arguments that are not search settings


@dataclasses.dataclass(frozen=True)
class TranslateOptions:
    """The arguments and options of the command."""

    model: arguments.Model
    text: arguments.Texts = None
    input: arguments.Input = None
    field: Annotated[str | None, option(INPUT, metavar="NAME", help=FIELD)] = None
    as_lines: arguments.AsLines = False
    on_error: arguments.OnError = arguments.BadLines.STOP
    output: Annotated[Path | None, arguments.output_option("translations")] = None
    output_field: Annotated[str, option(OUTPUT, metavar="NAME", help=OUTPUT_FIELD)] = "translation"
    resume: Annotated[bool, option(OUTPUT, "--resume")] = False
    force: Annotated[bool, option(OUTPUT, "--force")] = False
    as_json: Annotated[bool, option(OUTPUT, "--json")] = False
    beam_size: Annotated[int | None, option(SEARCH, metavar="N", help=BEAM_SIZE)] = None
    setting: arguments.Settings = None
    prefix: Annotated[str | None, option(SEARCH, metavar="TEXT")] = None
    glossary: arguments.Glossary = None
    split_sentences: Annotated[bool | None, option(INPUT, show_default=False)] = None
    language: Annotated[str | None, option(INPUT, metavar="CODE")] = None
    stream: Annotated[bool, option(SEARCH, "--stream")] = False
    quiet: arguments.Quiet = False

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The search settings by name."""
        default_beam = 1 if self.stream else None
        return arguments.search_settings(self.setting, self.beam_size, default_beam)

    @functools.cached_property
    def records(self) -> Texts:
        """The format of the input."""
        return registry.input_records(self.input, self.field, self.output_field)

    @functools.cached_property
    def results(self) -> Texts:
        """The format of the output."""
        return registry.output_records(self.records, self.input, self.output)

    @property
    def is_interactive(self) -> bool:
        """Whether a user types the sentences and reads the translations at a terminal."""
        redirected = self.text or self.input is not None or self.output is not None or self.as_json
        return not redirected and sys.stdin.isatty() and sys.stdout.isatty()


# Pairs of options that exclude each other, in the order of their checks.
EXCLUDED = {
    ("stream", "glossary"): "--stream: expected no --glossary, since streamed text cannot be "
    "revised",
    ("stream", "output"): "--stream: expected no --output, since a stream is printed",
    ("stream", "prefix"): "--stream: expected no --prefix, which a stream does not support",
    ("stream", "as_json"): "--json: expected no --stream, which prints text",
    ("resume", "force"): "--resume: expected no --force, which starts again",
}


@arguments.with_options(inspect.signature(TranslateOptions).parameters)
def translate_command(*, overrides: dict[str, Any]) -> None:
    """Translate texts, one per line, in the order of the lines. The translation of a blank line is
    blank. `translate-document` translates Markdown, HTML and other documents as a whole.

    A text may have several sentences. They are translated separately and joined with the blanks of
    the text. A sentence that is too long for the model is translated in parts.

    On a terminal, without TEXT and --input, type the texts at a prompt with history. There, :set
    NAME=VALUE changes a search setting, and :quit ends the program.

    With `--setting n_best=N`, print N lines per text, best first: NUMBER ||| TRANSLATION ||| SCORE.
    Texts are numbered from 0. Line k of a text of several sentences joins translation k of each
    sentence, and its score is the sum of their scores. With `--on-error skip`, the numbers of
    skipped texts are missing; with `--on-error blank`, their lines are NUMBER |||  ||| nan.

    Args:
        resume: Continue an interrupted run from --input to --output, if there is one; otherwise
            start a run.
        force: Replace an --output that exists, or an unfinished run.
        as_json: Print one line of JSON per text, with the scores of all hypotheses and of the
            sentences, if there are several.
        prefix: The forced beginning of every translation.
        split_sentences: Translate the sentences of each text separately, or let the model read each
            text as one sentence. Default: as the model is used, usually separately.
        language: The ISO 639 code of the language of the texts, for the ends of sentences. Default:
            the source language of MODEL, or English.
        stream: Print each translation token by token, by greedy search or by sampling.
    """
    options = TranslateOptions(**overrides)
    processing.check_lines(options.input, "--input", options.as_lines, options.model)
    _check_options(options)
    settings = {
        **options.settings,
        **arguments.glossary_argument(options.glossary),
        "split_sentences": options.split_sentences,
        "language": options.language,
    }
    lines = processing.input_lines(options.text, options.input, options.records)
    if options.language is not None:
        language_code(options.language, "--language")
    arguments.check_input_files(input=options.input)
    check_compression(options.input)
    registry.check_hypotheses(options.settings, options.records, options.results)
    if processing.nothing_to_resume(options.input, options.output, options.resume, options.force):
        return
    arguments.check_settings(options.model, options.settings)
    if options.is_interactive:
        _converse(options, settings)
        return
    processing.print_terminal_hint(options.text, options.input)
    if options.stream:
        _print_stream(options, lines, settings)
    else:
        _write_lines(options, lines, settings)


def _check_options(options: TranslateOptions) -> None:
    is_structured = type(options.results) is not Texts  # its lines have more than a text
    for (name, excluded), message in EXCLUDED.items():
        if getattr(options, name) and getattr(options, excluded) not in (None, False):
            raise ValueError(f"{message}; leave out one of them.")
    if options.as_json and is_structured:
        raise ValueError(
            "--json: expected an --input and an --output of plain lines, got "
            f"{registry.listed(registry.LINE_SUFFIXES)}; leave out --json."
        )


def _print_stream(
    options: TranslateOptions, lines: Iterable[Line], settings: dict[str, Any]
) -> None:
    """Print the translation of each line while the line is decoded."""
    translator = open_translator(options.model)

    def start(texts: list[str]) -> list[Outcome[Iterator[str]]]:
        try:
            return [translator.stream(texts[0], **settings)]
        except TextError as error:
            return [Refused(error.argument, error.reasons[0])]

    for chunk in processing.process_lines(lines, start, options.on_error, chunk_size=1):
        for line in chunk.lines:
            for part in [] if line.reason else line.outcome:
                print_line(one_line(part), sys.stdout, end="")
            print_line("", sys.stdout)


def _write_lines(
    options: TranslateOptions, lines: Iterable[Line], settings: dict[str, Any]
) -> None:
    output: OutputFile | Path | None = options.output
    if options.output is not None and processing.is_resumable(options.input, options.output):
        output = _resumable_output(options, options.output)
    translator = open_translator(options.model)
    check_texts([options.prefix or ""], "--prefix")

    def translate(texts: list[str]) -> Sequence[Any]:
        prefixes = [options.prefix] * len(texts) if options.prefix else None
        return translator.try_translate(texts, prefixes=prefixes, **settings)

    # Rows keep their line ends. The standard output of Windows adds its own.
    keeps_ends = type(options.results) is not Texts and (output is not None or os.linesep == "\n")

    def text_lines(line: Line) -> list[str]:
        text = None if line.reason else line.outcome.text
        row = options.results.result_line(line.record, text, line.problem)
        return [row + line.end if keeps_ends else row]

    output_lines: Callable[[Line], list[str]] = text_lines
    if options.as_json:
        output_lines = processing.json_lines(
            lambda line: {**_values(line.outcome), "source": line.texts[0]}
        )
    elif options.settings.get("n_best", 1) > 1:
        output_lines = _hypothesis_lines
    processing.write_results(
        lines,
        translate,
        output_lines,
        output,
        options.on_error,
        input=options.input,
        quiet=options.quiet,
        records=options.results,
    )


def _resumable_output(options: TranslateOptions, path: Path) -> OutputFile:
    """Return an output that can be resumed; with `--resume`, it continues an unfinished run."""
    run = {  # the values that both runs must have
        "model": processing.model_digest(options.model),
        "settings": options.settings,
        "prefix": options.prefix,
        "field": options.field,
        "output_field": options.output_field,
        "glossary": None if options.glossary is None else content_digest(options.glossary),
        "split_sentences": options.split_sentences,
        "language": options.language,
        **({"json": True} if options.as_json else {}),
        "records": type(options.results).__name__,
        "on_error": options.on_error.value,
    }
    done = unfinished_run(path) if options.resume else None
    if done:
        done.check_run(run)
        done = done._replace(run=run)
    return OutputFile(path, run, done)


def _hypothesis_lines(line: Line) -> list[str]:
    """Return the hypotheses in the n-best format of Moses and Marian: NUMBER ||| TEXT ||| SCORE."""
    if line.reason:
        return [f"{line.number - 1} |||  ||| nan"]
    return [
        f"{line.number - 1} ||| {one_line(hypothesis.text)} ||| {hypothesis.score:.6f}"
        for hypothesis in line.outcome.hypotheses
    ]


def _values(translation: "Translation") -> dict[str, Any]:
    values: dict[str, Any] = {
        "source": translation.source,
        "translation": translation.text,
        "hypotheses": [
            {"text": hypothesis.text, "score": round(hypothesis.score, 6)}
            for hypothesis in translation.hypotheses
        ],
    }
    if translation.confidence is not None:
        values["confidence"] = round(translation.confidence, 4)
    if translation.sentences:
        values["sentences"] = [_values(part) for part in translation.sentences]
    if translation.kept_characters:
        values["kept_characters"] = translation.kept_characters
    return values


def _converse(options: TranslateOptions, settings: dict[str, Any]) -> None:
    """Translate the lines that a user types; `:set` changes the settings."""
    translator = open_translator(options.model)
    # Windows has no readline, but its console has a history.
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # gives `input` its history and its keys
    print(CHAT_HELP)
    while True:
        try:
            line = input(PROMPT).strip()
            if line == ":quit":
                return
            if line.startswith(":"):
                settings = _run_command(line, translator, settings)
            elif line:
                _print_translation(line, translator, settings, options)
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
        print(CHAT_HELP)
    elif command == ":set" and not rest:
        rules = translator.runtime.rules
        values = {**{name: rules[name]["default"] for name in ALWAYS_SHOWN}, **settings}
        shown = {name: value for name, value in values.items() if name not in NOT_SHOWN}
        print(" ".join(f"{name}={setting_text(value)}" for name, value in shown.items()))
    elif command == ":set":
        name, value = arguments.named_value(rest.strip(), ":set", ":set beam_size=4")
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
    text: str, translator: "BaseTranslator", settings: dict[str, Any], options: TranslateOptions
) -> None:
    if options.stream:
        for part in translator.stream(text, **settings):
            print_line(part, sys.stdout, end="")
        print()
        return
    prefixes = [options.prefix] if options.prefix else None
    (translation,) = translator.translate([text], prefixes=prefixes, **settings)
    several = len(translation.hypotheses) > 1
    for hypothesis in translation.hypotheses:
        score = f"{hypothesis.score:9.4f}  " if several else ""
        print_line(f"{score}{hypothesis.text}", sys.stdout)
