"""`tfk-transformer translate`."""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from tfk_transformer.apps.cli.arguments import (
    DEFAULT_BEAM,
    INPUT,
    OUTPUT,
    SEARCH,
    BadLines,
    GlossaryFile,
    Input,
    Model,
    OnError,
    Quiet,
    Settings,
    Texts,
    check_input_files,
    check_settings,
    glossary_argument,
    open_translator,
    search_settings,
)
from tfk_transformer.apps.cli.processing import (
    input_lines,
    print_terminal_hint,
    process_lines,
    translation_job,
    write_results,
)
from tfk_transformer.apps.cli.progress import progress_bar
from tfk_transformer.apps.cli.record_options import with_options
from tfk_transformer.apps.cli.terminal import command_line, print_line
from tfk_transformer.apps.cli.text_commands.conversation import converse, is_interactive
from tfk_transformer.apps.cli.text_options import option, output_option
from tfk_transformer.apps.cli.text_output import (
    is_resumable,
    model_digest,
    nothing_to_resume,
    resumable_output,
)
from tfk_transformer.formats.compression import check_compression
from tfk_transformer.formats.lines import Line, one_line
from tfk_transformer.formats.lines import Texts as PlainTexts
from tfk_transformer.formats.output_file import OutputFile, content_digest
from tfk_transformer.formats.registry import (
    LINE_SUFFIXES,
    check_hypotheses,
    input_records,
    listed,
    output_records,
    parts_of,
)
from tfk_transformer.text.languages import language_code
from tfk_transformer.text.outcome import Outcome, Refused, TextError

EXAMPLES = """
# Type texts, and read each translation immediately.
tfk-transformer translate numbers-files/translate.onnx
tfk-transformer translate numbers-files/translate.onnx 'forty-two' 'seven'
# A text of two sentences.
tfk-transformer translate numbers-files/translate.onnx 'forty-two. seven.'
tfk-transformer translate numbers -i numbers.en -o numbers.out
# The three best translations with their scores.
tfk-transformer translate numbers 'forty-two' --setting n_best=3
"""


HELP = {
    "field": f"The {parts_of('--input')}, that contains the texts. A number selects a column of a "
    "table without a header.",
    "output_field": f"The {parts_of('--output')}, for the translations.",
    "resume": "Continue an interrupted run from --input to --output, if there is one; otherwise "
    "start a run.",
    "force": "Replace an --output that exists, or an unfinished run.",
    "as_json": "Print one line of JSON per text, with the scores of all hypotheses and of the "
    "sentences, if there are several.",
    "beam_size": "Number of hypotheses that the search keeps for each sentence; 1 is greedy "
    f"search. Default: the model's, or else {DEFAULT_BEAM}; 1 with --stream.",
    "prefix": "The forced beginning of every translation.",
    "split_sentences": "Translate the sentences of each text separately, or let the model read "
    "each text as one sentence. Default: as the model is used, usually separately.",
    "language": "The ISO 639 code of the language of the texts, for the ends of sentences. "
    "Default: the source language of MODEL, or English.",
    "stream": "Print each translation token by token, by greedy search or by sampling.",
    "moved": "An option of `translate-document`.",
}
MOVED = {"metavar": "VALUE", "hidden": True}


@dataclasses.dataclass(frozen=True)
class TranslateOptions:
    """The arguments and options of the command."""

    model: Model
    text: Texts = None
    input: Input = None
    field: Annotated[str | None, option(INPUT, HELP["field"], metavar="NAME")] = None
    on_error: OnError = BadLines.STOP
    output: Annotated[Path | None, output_option("translations")] = None
    output_field: Annotated[str, option(OUTPUT, HELP["output_field"], metavar="NAME")] = (
        "translation"
    )
    resume: Annotated[bool, option(OUTPUT, HELP["resume"], "--resume")] = False
    force: Annotated[bool, option(OUTPUT, HELP["force"], "--force")] = False
    as_json: Annotated[bool, option(OUTPUT, HELP["as_json"], "--json")] = False
    beam_size: Annotated[int | None, option(SEARCH, HELP["beam_size"], metavar="N")] = None
    setting: Settings = None
    prefix: Annotated[str | None, option(SEARCH, HELP["prefix"], metavar="TEXT")] = None
    glossary: GlossaryFile = None
    split_sentences: Annotated[
        bool | None, option(INPUT, HELP["split_sentences"], show_default=False)
    ] = None
    language: Annotated[str | None, option(INPUT, HELP["language"], metavar="CODE")] = None
    stream: Annotated[bool, option(SEARCH, HELP["stream"], "--stream")] = False
    quiet: Quiet = False
    # Options that moved to `translate-document`.
    document: Annotated[str | None, option(INPUT, HELP["moved"], "--document", **MOVED)] = None
    lines: Annotated[bool | None, option(INPUT, HELP["moved"], "--lines", **MOVED)] = None

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The search settings by name."""
        return search_settings(self.setting, self.beam_size, 1 if self.stream else None)

    @functools.cached_property
    def records(self) -> PlainTexts:
        """The format of the input."""
        return input_records(self.input, self.field, self.output_field)

    @functools.cached_property
    def results(self) -> PlainTexts:
        """The format of the output."""
        return output_records(self.records, self.input, self.output)

    @property
    def is_structured(self) -> bool:
        """Whether a line of the output has more than a text."""
        return type(self.results) is not PlainTexts


# The options that exclude others, in the order of their checks, with the message for each option
# that they exclude.
EXCLUDED = {
    "stream": {
        "glossary": "--stream: expected no --glossary, since streamed text cannot be revised; "
        "leave out one of them.",
        "output": "--stream: expected no --output, since a stream is printed; leave out one of "
        "them.",
        "prefix": "--stream: expected no --prefix, which a stream does not support; leave out one "
        "of them.",
        "as_json": "--json: expected no --stream, which prints text; leave out one of them.",
    },
    "resume": {
        "force": "--resume: expected no --force, which starts again; leave out one of them.",
    },
    "is_structured": {
        "as_json": "--json: expected an --input and an --output of plain lines, got "
        f"{listed(LINE_SUFFIXES)}; leave out --json."
    },
}


@with_options(inspect.signature(TranslateOptions).parameters)
def command(*, overrides: dict[str, Any]) -> None:
    """Translate texts, one per line, in the order of the lines. The translation of a blank line is
    blank.

    A text may have several sentences. They are translated separately and joined with the blanks of
    the text. A sentence that is too long for the model is translated in parts.

    On a terminal, without TEXT and --input, type the texts at a prompt with history. There, :set
    NAME=VALUE changes a search setting, and :quit ends the program.

    With `--setting n_best=N`, print N lines per text, best first: NUMBER ||| TRANSLATION ||| SCORE.
    Texts are numbered from 0. Line k of a text of several sentences joins translation k of each
    sentence, and its score is the sum of their scores. With `--on-error skip`, the numbers of
    skipped texts are missing; with `--on-error blank`, their lines are NUMBER |||  ||| nan.
    """
    options = TranslateOptions(**overrides)
    _check_options(options)
    arguments = {
        **options.settings,
        **glossary_argument(options.glossary),
        "split_sentences": options.split_sentences,
        "language": options.language,
    }
    lines = input_lines(options.text, options.input, options.records)
    if options.language is not None:
        language_code(options.language, "--language")
    check_input_files(input=options.input)
    check_compression(options.input)
    check_hypotheses(options.settings, options.records, options.results)
    if nothing_to_resume(options.input, options.output, options.resume, options.force):
        return
    check_settings(options.model, options.settings)
    if not options.as_json and is_interactive(options.text, options.input, options.output):
        converse(open_translator(options.model), arguments, options.prefix, options.stream)
    elif options.stream:
        _print_stream(options, lines, arguments)
    else:
        _write_lines(options, lines, arguments)


def _check_options(options: TranslateOptions) -> None:
    """Refuse options that moved to another command, and options that exclude each other."""
    if moved := [name for name in ("document", "lines") if getattr(options, name) is not None]:
        document = "FILE" if options.document is None else options.document
        words = ["tfk-transformer", "translate-document", str(options.model), document]
        raise ValueError(
            f"--{moved[0]}: expected an option for sentences, got an option for documents; run "
            f"`{command_line(words)}` with the same options."
        )
    for messages in [EXCLUDED[name] for name in EXCLUDED if getattr(options, name)]:
        for name, message in messages.items():
            if getattr(options, name) not in (None, False):
                raise ValueError(message)


def _print_stream(
    options: TranslateOptions, lines: Iterable[Line], arguments: dict[str, Any]
) -> None:
    """Print the translation of each line while the line is decoded."""
    print_terminal_hint(options.text, options.input)
    translator = open_translator(options.model)

    def start(texts: list[str]) -> list[Outcome[Iterator[str]]]:
        try:
            return [translator.stream(texts[0], **arguments)]
        except TextError as error:
            return [Refused(error.argument, error.reasons[0])]

    for chunk in process_lines(lines, start, options.on_error, chunk_size=1):
        for line in chunk.lines:
            for part in [] if line.reason else line.outcome:
                print_line(one_line(part), sys.stdout, end="")
            print_line("", sys.stdout)


def _write_lines(
    options: TranslateOptions, lines: Iterable[Line], arguments: dict[str, Any]
) -> None:
    """Write the translations of the lines to a file or to standard output."""
    output: OutputFile | Path | None = options.output
    done = 0
    if options.output is not None and is_resumable(options.input, options.output):
        run = {
            "model": model_digest(options.model),
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
        output = resumable_output(options.output, options.resume, run)
        done = output.done.lines
    print_terminal_hint(options.text, options.input)
    translator = open_translator(options.model)
    job = translation_job(translator, options.prefix, arguments, options.results, options.as_json)
    with progress_bar(options.input, options.output, done, options.quiet) as progress:
        write_results(job, lines, output, options.on_error, progress)
