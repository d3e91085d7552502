"""Input lines, processing and output of the text commands."""

import contextlib
import itertools
import json
import math
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from tfk_transformer.apps.cli.arguments import BadLines
from tfk_transformer.apps.cli.processing import process_lines
from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.formats.lines import Line, LineReader
from tfk_transformer.formats.output_file import OutputFile
from tfk_transformer.formats.records import Texts, one_line
from tfk_transformer.formats.unfinished import UnfinishedRun
from tfk_transformer.text.outcome import check_texts

if TYPE_CHECKING:
    from tfk_transformer.inference.base_classifier import BaseClassifier
    from tfk_transformer.inference.base_translator import BaseTranslator
    from tfk_transformer.text.results import Translation


class Job(NamedTuple):
    """The task of a command."""

    # Maps the texts of several lines, or of each of two files, to results.
    run: Callable[..., Iterable[Any]]
    # Maps a line with its result or problem to lines of the output.
    output_lines: Callable[[Line], Iterable[str]]
    records: Texts = Texts()  # the format of the output


def input_lines(
    text: list[str] | None, input: Path | None, records: Texts | None = None
) -> Iterable[Line]:
    """Return the input of a command: its TEXT arguments, or the lines of a file or standard input.

    Raises:
        ValueError: if both `text` and `input` are set, or an argument is blank.
    """
    if not text:
        return LineReader(input, records or Texts())
    if input is not None:
        raise ValueError("TEXT: expected sentences or --input, got both; leave out one of them.")
    blank = [number for number, sentence in enumerate(text, 1) if not sentence.strip()]
    if blank:
        raise ValueError(f"TEXT: expected sentences, got blank text at number {blank[0]}.")
    return (
        Line(("TEXT",), number, (sentence,), sentence) for number, sentence in enumerate(text, 1)
    )


def print_terminal_hint(text: list[str] | None, input: Path | None) -> None:
    """Print a hint to standard error if the input is read from a terminal."""
    if not text and input is None and sys.stdin.isatty():
        print_line("Reading one text per line from the terminal; Ctrl-D ends.")


def line_pairs(source: Path, target: Path) -> Iterator[Line]:
    """Yield the lines of two files in pairs.

    Raises:
        ValueError: if one file has fewer lines.
    """
    pairs = itertools.zip_longest(LineReader(source, Texts()), LineReader(target, Texts()))
    for number, (first, second) in enumerate(pairs, 1):
        if first is None or second is None:
            shorter, longer = (source, target) if first is None else (target, source)
            raise ValueError(
                f"{shorter}: expected a line for each line of {longer}, got {number - 1} lines."
            )
        wrong = first if first.reason else second
        yield Line(
            first.files + second.files,
            number,
            first.texts + second.texts,
            bad_file=wrong.bad_file,
            reason=wrong.reason,
        )


def translation_job(
    translator: "BaseTranslator",
    prefix: str | None,
    settings: dict[str, Any],
    records: Texts | None = None,
    as_json: bool = False,
) -> Job:
    """Return a job that writes translations as text or JSON, or with `n_best` all hypotheses."""
    check_texts([prefix or ""], "--prefix")
    output_records = records or Texts()

    def translate(texts: list[str]) -> Sequence[Any]:
        prefixes = [prefix] * len(texts) if prefix else None
        return translator.try_translate(texts, prefixes=prefixes, **settings)

    def translation_line(line: Line) -> Iterator[str]:
        text = None if line.reason else line.result.text
        yield output_records.result_line(line.record, text, line.problem)

    text_format = _hypothesis_lines if settings.get("n_best", 1) > 1 else translation_line
    return Job(translate, _translation_json if as_json else text_format, output_records)


def _translation_json(line: Line) -> Iterator[str]:
    if line.reason:
        yield _json(error=line.problem)
        return
    yield _json(**{**_translation_values(line.result), "source": line.texts[0]})


def _translation_values(translation: "Translation") -> dict[str, Any]:
    """Return the values of a translation for JSON."""
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
        values["sentences"] = [_translation_values(part) for part in translation.sentences]
    if translation.kept_characters:
        values["kept_characters"] = translation.kept_characters
    return values


def _hypothesis_lines(line: Line) -> Iterator[str]:
    """Yield the hypotheses in the n-best format of Moses and Marian: NUMBER ||| TEXT ||| SCORE."""
    if line.reason:
        yield f"{line.number - 1} |||  ||| nan"
        return
    for hypothesis in line.result.hypotheses:
        yield f"{line.number - 1} ||| {one_line(hypothesis.text)} ||| {hypothesis.score:.6f}"


def classification_job(classifier: "BaseClassifier", as_json: bool) -> Job:
    """Return a job that writes the label of each line, or JSON with all probabilities."""

    def label_line(line: Line) -> Iterator[str]:
        result = line.result
        if line.reason:
            yield _json(error=line.problem) if as_json else ""
        elif as_json:
            yield _json(
                text=result.source,
                label=result.label,
                probability=result.probability,
                probabilities=result.probabilities,
            )
        else:
            yield result.label

    return Job(classifier.try_classify, label_line)


def scoring_job(scorer: "BaseTranslator", tokens: bool) -> Job:
    """Return a job that writes the log-probability of each pair, or as JSON of each token."""

    def score_line(line: Line) -> Iterator[str]:
        result = line.result
        if not tokens:
            yield f"{math.nan if line.reason else result.log_probability:.6f}"
        elif line.reason:
            yield _json(error=line.problem)
        else:
            yield _json(
                source=line.texts[0],
                target=result.text,
                log_probability=round(result.log_probability, 6),
                tokens=result.tokens,
                token_log_probs=[round(value, 6) for value in result.token_log_probs],
            )

    return Job(scorer.try_score_tokens, score_line)


def _json(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False)


def write_results(
    job: Job,
    lines: Iterable[Line],
    output: OutputFile | Path | None,
    on_error: BadLines,
    progress: Callable[[int], None] = lambda lines: None,
) -> None:
    """Process lines, and write the results of each chunk.

    Args:
        job: the task.
        lines: the lines. A `LineReader` continues after the lines that an earlier run has
            processed.
        output: the output; see `open_output`.
        on_error: the action for a line that cannot be processed.
        progress: called with the number of lines that were read so far.
    """
    source = lines if isinstance(lines, LineReader) else None
    done = output.done if isinstance(output, OutputFile) else UnfinishedRun({})
    if source and done.lines:
        source.skip(done.lines, done.sha256)
    begun = bool(done.lines)
    with open_output(output) as out:
        for chunk in process_lines(lines, job.run, on_error, earlier=(done.total, done.bad)):
            texts = list(itertools.chain.from_iterable(map(job.output_lines, chunk.lines)))
            if not begun and (chunk.lines or chunk.bad):
                if job.records.output_header is not None:
                    texts.insert(0, job.records.output_header)
                begun = True
            if isinstance(out, OutputFile):
                if texts or chunk.bad:  # otherwise, do not replace the files of an earlier run
                    out.write(texts, chunk.bad)
                if chunk.complete and source:
                    out.commit(source.lines, source.sha256, chunk.total)
            else:
                _print(texts, out)
            progress(source.lines if source else chunk.total)


def write_lines(lines: Iterable[str], output: Path) -> None:
    """Write lines to a file, which appears when all lines are written."""
    with open_output(output) as out:
        if isinstance(out, OutputFile):
            out.write(map(one_line, lines))
        else:
            _print(lines, out)


def _print(texts: Iterable[str], file: TextIO) -> None:
    for text in texts:
        print_line(text, file)


@contextlib.contextmanager
def open_output(output: OutputFile | Path | None) -> Iterator[OutputFile | TextIO]:
    """Open an output.

    A path becomes an `OutputFile`, unless it is a pipe or a device. None is standard output. After
    an error, Ctrl-C or SIGTERM, the file is unchanged, and a message names the file that contains
    the finished lines.
    """
    if output is None:
        yield sys.stdout
    elif isinstance(output, Path) and output.exists() and not output.is_file():  # pipe or device
        with output.open("w", encoding="utf-8") as file:
            yield file
    else:
        output_file = output if isinstance(output, OutputFile) else OutputFile(output)
        with _exit_at_sigterm(), _opened_with_report(output_file):
            yield output_file


@contextlib.contextmanager
def _opened_with_report(out: OutputFile) -> Iterator[None]:
    """Open a file. After an error in the block, print the name of the file with finished lines."""
    try:
        with out:
            yield
    except BaseException:
        if out.done.written:
            lines = (
                "1 finished line"
                if out.done.written == 1
                else f"{out.done.written:,} finished lines"
            )
            hint = (
                f" --resume continues after line {out.committed:,} of the input."
                if out.committed
                else ""
            )
            print_line(f"{out.partial} has the {lines}; {out.path} was not written.{hint}")
        raise


@contextlib.contextmanager
def _exit_at_sigterm() -> Iterator[None]:
    """Let SIGTERM raise `SystemExit`, with the status that a shell reports for the signal."""
    previous = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def print_streams(
    translator: "BaseTranslator",
    lines: Iterable[Line],
    settings: dict[str, Any],
    on_error: BadLines,
) -> None:
    """Print the translation of each line while the line is decoded."""

    def start(texts: list[str]) -> list[Iterator[str]]:
        return [translator.stream(texts[0], **settings)]

    for chunk in process_lines(lines, start, on_error, chunk_size=1):
        for line in chunk.lines:
            for part in line.result or []:
                print_line(one_line(part), sys.stdout, end="")
            print_line("", sys.stdout)
