"""What the commands read lines from, what they do with them, and where the results go."""

import contextlib
import itertools
import json
import math
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from tfk_transformer.cli.arguments import BadLines
from tfk_transformer.cli.processing import processed
from tfk_transformer.inference.text_batches import check_texts
from tfk_transformer.text_files.lines import Line, LineReader
from tfk_transformer.text_files.output_file import OutputFile
from tfk_transformer.text_files.records import Texts, one_line
from tfk_transformer.text_files.unfinished import Unfinished

if TYPE_CHECKING:
    from tfk_transformer.inference.interface import ClassifierProtocol, TranslatorProtocol
    from tfk_transformer.inference.results import ScoredTarget


class Job(NamedTuple):
    """What a command does with lines."""

    # Maps the texts of several lines, or of each of two files, to results.
    run: Callable[..., Iterable[Any]]
    # Maps a line with its result or problem to lines of the output.
    written: Callable[[Line], Iterable[str]]
    records: Texts = Texts()  # what the lines of the output are


def given_texts(
    text: list[str] | None, input: Path | None, records: Texts | None = None
) -> Iterable[Line]:
    """Return the texts of a command: its arguments, or else the lines of a file or of standard
    input.

    Raises:
        ValueError: if both are given, or an argument is blank.
    """
    if not text:
        return LineReader(input, records or Texts())
    if input is not None:
        raise ValueError("TEXT: expected sentences or --input, got both; give one.")
    blank = [number for number, sentence in enumerate(text, 1) if not sentence.strip()]
    if blank:
        raise ValueError(f"TEXT: expected a sentence, got blank text as number {blank[0]}.")
    return (
        Line(("TEXT",), number, (sentence,), sentence) for number, sentence in enumerate(text, 1)
    )


def hint_at_terminal(text: list[str] | None, input: Path | None) -> None:
    """Tell a user whose terminal is read that it is, on standard error."""
    if not text and input is None and sys.stdin.isatty():
        print(
            "Reading one text per line from the terminal; Ctrl-D ends.", file=sys.stderr, flush=True
        )


def line_pairs(source: Path, target: Path) -> Iterator[Line]:
    """Yield the lines of two files side by side.

    Raises:
        ValueError: if one file has fewer lines.
    """
    for number, (first, second) in enumerate(
        itertools.zip_longest(LineReader(source, Texts()), LineReader(target, Texts())), 1
    ):
        if first is None or second is None:
            shorter, longer = (source, target) if first is None else (target, source)
            raise ValueError(
                f"{shorter}: expected a line for each of {longer}, got {number - 1} lines."
            )
        wrong = first if first.reason else second
        yield Line(
            first.files + second.files,
            number,
            first.texts + second.texts,
            place=wrong.place,
            reason=wrong.reason,
        )


def translation_job(
    translator: "TranslatorProtocol",
    prefix: str | None,
    settings: dict[str, Any],
    records: Texts | None = None,
    as_json: bool = False,
) -> Job:
    """Translate lines, and write one line each: the translation, or JSON; or one line per
    hypothesis where `n_best` asks for several.
    """
    check_texts([prefix or ""], "--prefix")
    kind = records or Texts()

    def translate(texts: list[str]) -> Sequence[Any]:
        return translator.translate(
            texts, prefixes=[prefix] * len(texts) if prefix else None, **settings
        )

    def written(line: Line) -> Iterator[str]:
        yield kind.result_line(line.record, None if line.reason else line.result.text, line.problem)

    several = _hypothesis_lines if settings.get("n_best", 1) > 1 else written
    return Job(translate, _translation_json if as_json else several, kind)


def _translation_json(line: Line) -> Iterator[str]:
    if line.reason:
        yield _json(error=line.problem)
        return
    hypotheses = [
        {"text": found.text, "score": round(found.score, 6)} for found in line.result.hypotheses
    ]
    yield _json(source=line.texts[0], translation=line.result.text, hypotheses=hypotheses)


def _hypothesis_lines(line: Line) -> Iterator[str]:
    """Yield NUMBER ||| TEXT ||| SCORE for each hypothesis, as Moses and Marian write n-best
    lists.
    """
    if line.reason:
        yield f"{line.number - 1} |||  ||| nan"
        return
    for hypothesis in line.result.hypotheses:
        yield f"{line.number - 1} ||| {one_line(hypothesis.text)} ||| {hypothesis.score:.6f}"


def classification_job(classifier: "ClassifierProtocol", as_json: bool) -> Job:
    """Classify lines, and write the label of each, or a JSON object with the probability of every
    label.
    """

    def written(line: Line) -> Iterator[str]:
        found = line.result
        if line.reason:
            yield _json(error=line.problem) if as_json else ""
        elif as_json:
            yield _json(
                text=found.source,
                label=found.label,
                probability=found.probability,
                probabilities=found.probabilities,
            )
        else:
            yield found.label

    return Job(classifier.classify, written)


def scoring_job(scorer: "TranslatorProtocol", tokens: bool) -> Job:
    """Score pairs, and write the log-probability of each, or a JSON object with that of every
    token.
    """

    def written(line: Line) -> Iterator[str]:
        if tokens:
            yield (
                _json(error=line.problem)
                if line.reason
                else _token_line(line.texts[0], line.result)
            )
        else:
            yield f"{math.nan if line.reason else line.result:.6f}"

    return Job(scorer.score_tokens if tokens else scorer.score, written)


def _token_line(source: str, found: "ScoredTarget") -> str:
    return _json(
        source=source,
        target=found.text,
        log_probability=round(found.log_probability, 6),
        tokens=found.tokens,
        token_log_probs=[round(value, 6) for value in found.token_log_probs],
    )


def _json(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False)


def write_results(
    job: Job,
    lines: Iterable[Line],
    output: OutputFile | Path | None,
    on_error: BadLines,
    progress: Callable[[int], None] = lambda lines: None,
) -> None:
    """Process lines and write the results as they come.

    Args:
        job: what to do with the lines.
        lines: the lines. A `LineReader` continues after the lines that an earlier run has
            processed.
        output: where the results go: see `opened_output`.
        on_error: what to do with a line that cannot be processed.
        progress: called with the number of lines that were read so far.
    """
    source = lines if isinstance(lines, LineReader) else None
    done = output.done if isinstance(output, OutputFile) else Unfinished({})
    if source and done.lines:
        source.skip(done.lines, done.sha256)
    begun = bool(done.lines)
    with opened_output(output) as out:
        for chunk in processed(lines, job.run, on_error, before=(done.total, done.bad)):
            texts = [text for line in chunk.lines for text in job.written(line)]
            if not begun and (chunk.lines or chunk.bad):
                texts[:0] = (
                    [job.records.output_header] if job.records.output_header is not None else []
                )
                begun = True
            if isinstance(out, OutputFile):
                _write_part(out, texts, chunk.bad)
                if chunk.complete and source:
                    out.commit(source.lines, source.sha256, chunk.total)
            else:
                _print(texts, out)
            progress(source.lines if source else chunk.total)


def write_lines(lines: Iterable[str], output: Path) -> None:
    """Write lines to a file, which appears when all are written."""
    with opened_output(output) as out:
        if isinstance(out, OutputFile):
            out.write(map(one_line, lines))
        else:
            _print(lines, out)


def _write_part(out: OutputFile, texts: list[str], bad: list[Line]) -> None:
    if texts or bad:  # without either, nothing of an earlier run is replaced
        out.write(texts, bad)


def _print(texts: Iterable[str], file: TextIO) -> None:
    for text in texts:
        print(text, file=file, flush=True)


@contextlib.contextmanager
def opened_output(output: OutputFile | Path | None) -> Iterator[OutputFile | TextIO]:
    """Open an output.

    A path becomes an `OutputFile`, unless it is a pipe or a device; None is standard output. After
    an error, Ctrl-C or SIGTERM, the file is unchanged and a message names its neighbour with the
    finished lines.
    """
    if output is None:
        yield sys.stdout
    elif isinstance(output, Path) and output.exists() and not output.is_file():
        # A pipe or a device.
        with output.open("w", encoding="utf-8") as file:
            yield file
    else:
        whole = output if isinstance(output, OutputFile) else OutputFile(output)
        with _exit_at_sigterm(), _reported(whole):
            yield whole


@contextlib.contextmanager
def _reported(out: OutputFile) -> Iterator[None]:
    """Open a file, and tell where its finished lines are if the block ends early."""
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
            again = (
                f" --resume continues after line {out.committed:,} of the input."
                if out.committed
                else ""
            )
            print(
                f"{out.partial} has the {lines}; {out.path} was not written.{again}",
                file=sys.stderr,
                flush=True,
            )
        raise


@contextlib.contextmanager
def _exit_at_sigterm() -> Iterator[None]:
    """Let SIGTERM end the process as an exception does, with the status that a shell reports for
    it.
    """
    former = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def check_stream(output: Path | None, prefix: str | None) -> None:
    """Refuse options that do not go with --stream.

    Raises:
        ValueError: with the name of the first such option.
    """
    if output is not None:
        raise ValueError(
            "--stream: expected no --output, since a stream is printed; leave out either."
        )
    if prefix is not None:
        raise ValueError(
            "--stream: expected no --prefix, which a stream does not support; leave out either."
        )


def print_streams(
    translator: "TranslatorProtocol",
    lines: Iterable[Line],
    settings: dict[str, Any],
    on_error: BadLines,
) -> None:
    """Print the translation of each line while it is decoded."""

    def start(texts: list[str]) -> list[Iterator[str]]:
        return [translator.stream(texts[0], **settings)]

    for chunk in processed(lines, start, on_error, together=1):
        for line in chunk.lines:
            for part in line.result or []:
                print(part, end="", flush=True)
            print(flush=True)
