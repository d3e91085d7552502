"""The lines of the text commands: their input, their processing in chunks, and their output."""

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfk_transformer.apps.cli.arguments import BadLines
from tfk_transformer.apps.cli.terminal import print_line
from tfk_transformer.apps.cli.text_output import open_output
from tfk_transformer.formats.lines import Line, LineReader, Texts, one_line
from tfk_transformer.formats.output_file import OutputFile, UnfinishedRun
from tfk_transformer.text.outcome import Outcome, check_texts

if TYPE_CHECKING:
    from tfk_transformer.inference.base_translator import BaseTranslator
    from tfk_transformer.text.results import Translation

CHUNK = 2000  # lines that are processed together, and written as one part of a compressed file


def input_lines(
    text: list[str] | None, input: Path | None, records: Texts | None = None
) -> Iterable[Line]:
    """Return the input of a command: its TEXT arguments, or the lines of a file or standard input.

    Both, or an argument that is blank, are refused.
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
    """Yield the lines of two files, which have equally many lines, in pairs."""
    pairs = itertools.zip_longest(LineReader(source, Texts()), LineReader(target, Texts()))
    for number, (first, second) in enumerate(pairs, 1):
        if first is None or second is None:
            shorter, longer = (source, target) if first is None else (target, source)
            raise ValueError(
                f"{shorter}: expected a line for each line of {longer}, got {number - 1} lines."
            )
        outcome = first.outcome
        if second.reason and not first.reason:
            outcome = second.outcome._replace(argument="targets")
        files = (*first.files, *second.files)
        yield Line(files, number, (*first.texts, *second.texts), outcome=outcome)


class Job(NamedTuple):
    """The task of a command."""

    # Maps the texts of several lines, or of each of two files, to their outcomes.
    run: Callable[..., Iterable[Outcome[Any]]]
    # Maps a line with its outcome to lines of the output.
    output_lines: Callable[[Line], Iterable[str]]
    records: Texts = Texts()  # the format of the output


class Chunk(NamedTuple):
    """Lines that were processed together."""

    lines: list[Line]  # lines that are in the output
    bad: list[Line]  # lines that could not be processed
    total: int  # number of lines of all chunks so far
    complete: bool  # False if the command ends with an error after these lines


def write_results(
    job: Job,
    lines: Iterable[Line],
    output: OutputFile | Path | None,
    on_error: BadLines,
    progress: Callable[[int], None] = lambda lines: None,
) -> None:
    """Process lines, and write the results of each chunk to an output; see `open_output`.

    A `LineReader` continues after the lines that an earlier run has processed. `progress` is called
    with the number of lines that were read so far.
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
                for text in texts:
                    print_line(text, out)
            progress(source.lines if source else chunk.total)


def process_lines(
    lines: Iterable[Line],
    run: Callable[..., Iterable[Outcome[Any]]],
    on_error: BadLines,
    chunk_size: int = CHUNK,
    earlier: tuple[int, int] = (0, 0),
) -> Iterator[Chunk]:
    """Process lines, and yield them in chunks, each line with its outcome.

    `earlier` are the numbers of lines and of bad lines that an earlier run processed.

    Raises:
        ValueError: if there are no lines; or if a line cannot be processed and `on_error` is
            `stop`, after the previous lines are processed.
    """
    count, bad_count = earlier
    for chunk_lines, complete in _chunks(lines, on_error, chunk_size):
        waiting = [line for line in chunk_lines if not line.reason]
        columns = zip(*(line.texts for line in waiting), strict=True)
        outcomes = iter(run(*columns) if waiting else [])
        done = [
            line if line.reason else line._replace(outcome=next(outcomes)) for line in chunk_lines
        ]
        bad = [line for line in done if line.reason]
        if bad and on_error is BadLines.STOP:
            yield Chunk(done[: done.index(bad[0])], [], count, complete=False)
            raise ValueError(bad[0].problem)
        for line in bad:
            print_line(line.problem)
        count += len(done)
        bad_count += len(bad)
        output = [line for line in done if not line.reason or on_error is BadLines.BLANK]
        yield Chunk(output, bad, count, complete)
    if bad_count:
        action = "left out" if on_error is BadLines.SKIP else "left blank"
        print_line(f"{bad_count:,} of {count:,} lines could not be processed and were {action}.")
    if not count:
        raise ValueError("input: expected one sentence per line, got no lines.")


def _chunks(
    lines: Iterable[Line], on_error: BadLines, size: int
) -> Iterator[tuple[list[Line], bool]]:
    """Yield lists of at most `size` lines, and whether each list is complete.

    A list is incomplete if it ends before a line that stops the command, or before a read error.
    """
    chunk: list[Line] = []
    try:
        for line in lines:
            if line.reason and on_error is BadLines.STOP:
                raise ValueError(line.problem)
            chunk.append(line)
            if len(chunk) == size:
                yield chunk, True
                chunk = []
    except (OSError, ValueError):
        if chunk:
            yield chunk, False
        raise
    if chunk:
        yield chunk, True


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
        text = None if line.reason else line.outcome.text
        yield output_records.result_line(line.record, text, line.problem)

    text_format = _hypothesis_lines if settings.get("n_best", 1) > 1 else translation_line
    return Job(translate, _translation_json if as_json else text_format, output_records)


def _translation_json(line: Line) -> Iterator[str]:
    if line.reason:
        yield json_line(error=line.problem)
    else:
        yield json_line(**{**_translation_values(line.outcome), "source": line.texts[0]})


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
    for hypothesis in line.outcome.hypotheses:
        yield f"{line.number - 1} ||| {one_line(hypothesis.text)} ||| {hypothesis.score:.6f}"


def json_line(**values: Any) -> str:
    """Return values as a line of JSON."""
    return json.dumps(values, ensure_ascii=False)
