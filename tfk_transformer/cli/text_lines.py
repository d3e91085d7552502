"""Lines of text: read from arguments, files or standard input, processed in chunks, and written to a file or standard output."""

import contextlib
import itertools
import json
import math
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfk_transformer.atomic_write import LineFile
from tfk_transformer.cli.arguments import BadLines
from tfk_transformer.inference.text_batches import check_texts
from tfk_transformer.inference.text_errors import TextError

if TYPE_CHECKING:
    from tfk_transformer.inference.interface import ClassifierProtocol, TranslatorProtocol
    from tfk_transformer.inference.results import ScoredTarget, Translation

CHUNK = 2000  # lines that are processed together


class Line(NamedTuple):
    """A line of the input, or a line of each of two files; later also its result."""

    files: tuple[str, ...]  # the name of each file
    number: int  # of the line, from 1
    texts: tuple[str, ...] = ()
    problem: str = ""  # FILE:NUMBER: reason, of a line that cannot be processed
    result: Any = None  # of a line that was processed

    def refused(self, argument: str, reason: str) -> "Line":
        """Return this line with its problem.

        Args:
            argument: the argument that the text was given as; "targets" is the second file.
            reason: what is wrong.
        """
        return self._replace(problem=f"{self.files[-1 if argument == 'targets' else 0]}:{self.number}: {reason}")


def given_texts(text: list[str] | None, input: Path | None) -> Iterator[Line]:
    """Return the texts of a command: its arguments, or else the lines of a file or of standard input.

    Raises:
        ValueError: if both are given, or an argument is blank.
    """
    if not text:
        return _lines(input)
    if input is not None:
        raise ValueError("TEXT: expected sentences or --input, got both; give one.")
    blank = [number for number, sentence in enumerate(text, 1) if not sentence.strip()]
    if blank:
        raise ValueError(f"TEXT: expected a sentence, got blank text as number {blank[0]}.")
    return (Line(("TEXT",), number, (sentence,)) for number, sentence in enumerate(text, 1))


def line_pairs(source: Path, target: Path) -> Iterator[Line]:
    """Yield the lines of two files side by side.

    Raises:
        ValueError: if one file has fewer lines.
    """
    for number, (first, second) in enumerate(itertools.zip_longest(_lines(source), _lines(target)), 1):
        if first is None or second is None:
            shorter, longer = (source, target) if first is None else (target, source)
            raise ValueError(f"{shorter}: expected a line for each of {longer}, got {number - 1} lines.")
        yield Line(first.files + second.files, number, first.texts + second.texts, first.problem or second.problem)


def _lines(input: Path | None) -> Iterator[Line]:
    """Yield the lines of a UTF-8 file, or of standard input."""
    name = "standard input" if input is None else str(input)
    with sys.stdin.buffer if input is None else input.open("rb") as file:
        for number, data in enumerate(file, 1):
            line = Line((name,), number)
            try:
                yield line._replace(texts=(data.decode("utf-8").removesuffix("\n").removesuffix("\r"),))
            except UnicodeDecodeError as error:
                byte, column = data[error.start], error.start + 1
                yield line.refused("texts", f"expected UTF-8, got byte 0x{byte:02x} at column {column}.")


def translation_lines(
    translator: "TranslatorProtocol", lines: Iterator[Line], prefix: str | None, settings: dict[str, Any], on_error: BadLines
) -> Iterator[str]:
    """Translate lines and yield one line each, or one line per hypothesis where `n_best` asks for several."""
    several = settings.get("n_best", 1) > 1
    check_texts([prefix or ""], "--prefix")

    def translate(texts: list[str]) -> Sequence["Translation"]:
        return translator.translate(texts, prefixes=[prefix] * len(texts) if prefix else None, **settings)

    for line in _processed(lines, translate, on_error):
        if several:
            yield from _hypothesis_lines(line)
        else:
            yield "" if line.problem else line.result.text


def _hypothesis_lines(line: Line) -> Iterator[str]:
    """Yield NUMBER ||| TEXT ||| SCORE for each hypothesis, as Moses and Marian write n-best lists."""
    if line.problem:
        yield f"{line.number - 1} |||  ||| nan"
        return
    for hypothesis in line.result.hypotheses:
        yield f"{line.number - 1} ||| {hypothesis.text} ||| {hypothesis.score:.6f}"


def classification_lines(classifier: "ClassifierProtocol", lines: Iterator[Line], as_json: bool, on_error: BadLines) -> Iterator[str]:
    """Classify lines and yield the label of each, or a JSON object with the probability of every label."""
    for line in _processed(lines, classifier.classify, on_error):
        found = line.result
        if line.problem:
            yield _json(error=line.problem) if as_json else ""
        elif as_json:
            yield _json(text=found.source, label=found.label, probability=found.probability, probabilities=found.probabilities)
        else:
            yield found.label


def score_lines(scorer: "TranslatorProtocol", pairs: Iterator[Line], tokens: bool, on_error: BadLines) -> Iterator[str]:
    """Score pairs and yield the log-probability of each, or a JSON object with that of every token."""
    for line in _processed(pairs, scorer.score_tokens if tokens else scorer.score, on_error):
        if tokens:
            yield _json(error=line.problem) if line.problem else _token_line(line.texts[0], line.result)
        else:
            yield f"{math.nan if line.problem else line.result:.6f}"


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


def _processed(lines: Iterator[Line], run: Callable[..., Iterable[Any]], on_error: BadLines, together: int = CHUNK) -> Iterator[Line]:
    """Yield each line with its result, or with its problem where `on_error` keeps a place for it.

    Args:
        lines: the lines.
        run: maps the texts of several lines, or the texts of each of two files, to results.
        on_error: what to do with a line that cannot be processed.
        together: lines that are processed together.

    Raises:
        ValueError: if a line cannot be processed and `on_error` is `stop`, after the lines before it; if there is no line.
    """
    count = bad = 0
    for chunk in _chunks(lines, on_error, together):
        for line in _run_once(chunk, run):
            count, bad = count + 1, bad + bool(line.problem)
            if not line.problem or _kept(line, on_error):
                yield line
    if bad:
        done = "left out" if on_error is BadLines.SKIP else "left blank"
        print(f"{bad:,} of {count:,} lines could not be processed and were {done}.", file=sys.stderr)
    if not count:
        raise ValueError("input: expected a sentence a line, got nothing.")


def _kept(line: Line, on_error: BadLines) -> bool:
    """Report a line that cannot be processed, and return whether it has a place in the output."""
    if on_error is BadLines.STOP:
        raise ValueError(line.problem)
    print(line.problem, file=sys.stderr, flush=True)
    return on_error is BadLines.BLANK


def _run_once(lines: list[Line], run: Callable[..., Iterable[Any]]) -> list[Line]:
    """Process lines, and return each with its result or its problem. The model sees each line that it can process once.

    Only where an error comes without the results of the other lines, these run again.
    """
    done = dict(enumerate(lines))
    waiting = [number for number, line in done.items() if not line.problem]
    while waiting:
        try:
            results = dict(enumerate(run(*map(list, zip(*(done[number].texts for number in waiting), strict=True)))))
        except TextError as error:
            results = error.results
            for i, reason in error.reasons.items():
                done[waiting[i]] = done[waiting[i]].refused(error.argument, reason)
        for i, result in results.items():
            done[waiting[i]] = done[waiting[i]]._replace(result=result)
        waiting = [] if results else [number for number in waiting if not done[number].problem]
    return list(done.values())


def _chunks(lines: Iterator[Line], on_error: BadLines, size: int) -> Iterator[list[Line]]:
    """Yield the lines in lists of at most `size`; the lines before one that stops the command are a list of their own."""
    chunk: list[Line] = []
    try:
        for line in lines:
            if line.problem and on_error is BadLines.STOP:
                raise ValueError(line.problem)
            chunk.append(line)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except (OSError, ValueError):
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def write_lines(lines: Iterable[str], output: Path | None) -> None:
    """Print lines as they come, or write them to OUTPUT.partial, which becomes OUTPUT when all are written.

    After an error, Ctrl-C or SIGTERM, OUTPUT is unchanged and a message names OUTPUT.partial with the finished lines.
    """
    if output is None:
        for line in lines:
            print(line, flush=True)
    elif output.exists() and not (output.is_file() or output.is_dir()):  # a pipe or a device
        with output.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    else:
        with _exit_at_sigterm(), _reported(LineFile(output)) as whole:
            for line in lines:
                whole.write(line)


@contextlib.contextmanager
def _reported(whole: LineFile) -> Iterator[LineFile]:
    """Open a file, and tell where its finished lines are if the block ends early."""
    try:
        with whole:
            yield whole
    except BaseException:
        if whole.count:
            lines = "1 finished line" if whole.count == 1 else f"{whole.count:,} finished lines"
            print(f"{whole.partial} has the {lines}; {whole.path} was not written.", file=sys.stderr, flush=True)
        raise


@contextlib.contextmanager
def _exit_at_sigterm() -> Iterator[None]:
    """Let SIGTERM end the process as an exception does, with the status that a shell reports for it."""
    former = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def print_streams(
    translator: "TranslatorProtocol",
    lines: Iterator[Line],
    prefix: str | None,
    settings: dict[str, Any],
    output: Path | None,
    on_error: BadLines,
) -> None:
    """Print the translation of each line while it is decoded."""
    if output is not None:
        raise ValueError("--stream: expected no --output, since a stream is printed; leave out either.")
    if prefix is not None:
        raise ValueError("--stream: expected no --prefix, which a stream does not support; leave out either.")

    def start(texts: list[str]) -> list[Iterator[str]]:
        return [translator.stream(texts[0], **settings)]

    for line in _processed(lines, start, on_error, together=1):
        for part in line.result or []:
            print(part, end="", flush=True)
        print(flush=True)
