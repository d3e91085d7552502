"""`tfk-transformer translate`."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

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
from tfk_transformer.apps.cli.progress import progress_bar
from tfk_transformer.apps.cli.record_options import parameter, with_options
from tfk_transformer.apps.cli.terminal import command_line
from tfk_transformer.apps.cli.text_commands.conversation import converse, is_interactive
from tfk_transformer.apps.cli.text_lines import (
    input_lines,
    print_streams,
    print_terminal_hint,
    translation_job,
    write_results,
)
from tfk_transformer.apps.cli.text_output import (
    is_resumable,
    model_digest,
    nothing_to_resume,
    resumable_output,
)
from tfk_transformer.formats.compression import check_compression
from tfk_transformer.formats.lines import Line
from tfk_transformer.formats.output_file import OutputFile
from tfk_transformer.formats.records import Texts as PlainTexts
from tfk_transformer.formats.records import check_hypotheses, input_records, output_records
from tfk_transformer.formats.unfinished import content_digest
from tfk_transformer.text.languages import language_code

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


@dataclasses.dataclass(frozen=True)
class TranslateOptions:
    """The arguments and options of the command."""

    model: Model
    text: Texts = None
    input: Input = None
    field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The column of a .tsv --input, or the key of a .jsonl --input, that contains the "
            "texts. A number selects a column of a table without a header.",
            rich_help_panel=INPUT,
        ),
    ] = None
    on_error: OnError = BadLines.STOP
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file for the translations: plain, .gz or .zst. It is written as FILE.partial "
            "until it is complete. "
            "Default: standard output.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    output_field: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The column of a .tsv --output, or the key of a .jsonl --output, for the "
            "translations.",
            rich_help_panel=OUTPUT,
        ),
    ] = "translation"
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help=(
                "Continue an interrupted run from --input to --output, if there is one; otherwise "
                "start a run."
            ),
            rich_help_panel=OUTPUT,
        ),
    ] = False
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace an --output that exists, or an unfinished run.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one line of JSON per text, with the scores of all hypotheses and of the "
            "sentences, if there are several.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    beam_size: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of hypotheses that the search keeps for each sentence; 1 is greedy "
            "search. "
            f"Default: the model's, or else {DEFAULT_BEAM}; 1 with --stream.",
            rich_help_panel=SEARCH,
        ),
    ] = None
    setting: Settings = None
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The forced beginning of every translation.",
            rich_help_panel=SEARCH,
        ),
    ] = None
    glossary: GlossaryFile = None
    split_sentences: Annotated[
        bool | None,
        typer.Option(
            help="Translate the sentences of each text separately, or let the model read each text "
            "as one sentence. Default: as the model is used, usually separately.",
            rich_help_panel=INPUT,
            show_default=False,
        ),
    ] = None
    language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="The ISO 639 code of the language of the texts, for the ends of sentences. "
            "Default: the source language of MODEL, or English.",
            rich_help_panel=INPUT,
        ),
    ] = None
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Print each translation token by token, by greedy search or by sampling.",
            rich_help_panel=SEARCH,
        ),
    ] = False
    quiet: Quiet = False

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


class Mode(NamedTuple):
    """A way to run the command."""

    applies: Callable[[TranslateOptions], bool]
    # Called with the options, the lines of the input, and the search settings with the glossary.
    run: Callable[[TranslateOptions, Iterable[Line], dict[str, Any]], None]
    # The error message for each option that the mode excludes, by the name of its field.
    excluded: Mapping[str, str] = {}


def _print_stream(
    options: TranslateOptions, lines: Iterable[Line], arguments: dict[str, Any]
) -> None:
    """Print each translation token by token."""
    print_terminal_hint(options.text, options.input)
    print_streams(open_translator(options.model), lines, arguments, options.on_error)


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


# The first mode that applies is run. The exclusions of all modes that apply are checked.
MODES = {
    "prompt": Mode(
        lambda options: (
            not options.as_json and is_interactive(options.text, options.input, options.output)
        ),
        lambda options, lines, arguments: converse(
            open_translator(options.model), arguments, options.prefix, options.stream
        ),
    ),
    "stream": Mode(
        lambda options: options.stream,
        _print_stream,
        {
            "glossary": "--stream: expected no --glossary, since streamed text cannot be revised; "
            "leave out one of them.",
            "output": "--stream: expected no --output, since a stream is printed; leave out one "
            "of them.",
            "prefix": "--stream: expected no --prefix, which a stream does not support; leave out "
            "one of them.",
            "as_json": "--json: expected no --stream, which prints text; leave out one of them.",
        },
    ),
    "continued run": Mode(
        lambda options: options.resume,
        _write_lines,
        {
            "force": "--resume: expected no --force, which starts again; leave out one of them.",
        },
    ),
    "tables and JSON lines": Mode(
        lambda options: type(options.results) is not PlainTexts,
        _write_lines,
        {
            "as_json": "--json: expected an --input and an --output of plain lines, got .tsv or "
            ".jsonl; leave out --json."
        },
    ),
    "lines": Mode(lambda options: True, _write_lines),
}
# Options that moved to `translate-document`.
MOVED = {
    name: parameter(
        name,
        annotation,
        typer.Option(
            f"--{name}", metavar="VALUE", hidden=True, help="An option of `translate-document`."
        ),
    )
    for name, annotation in (("document", str), ("lines", bool))
}


@with_options({**inspect.signature(TranslateOptions).parameters, **MOVED})
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
    if moved := [name for name in MOVED if name in overrides]:
        document = str(overrides.get("document", "FILE"))
        words = ["tfk-transformer", "translate-document", str(overrides["model"]), document]
        raise ValueError(
            f"--{moved[0]}: expected an option for sentences, got an option for documents; run "
            f"`{command_line(words)}` with the same options."
        )
    options = TranslateOptions(**overrides)
    modes = [mode for mode in MODES.values() if mode.applies(options)]
    for mode in modes:
        for name, message in mode.excluded.items():
            if getattr(options, name) not in (None, False):
                raise ValueError(message)
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
    modes[0].run(options, lines, arguments)
