"""Lines of text: read from arguments, files or standard input, processed in chunks, and written to a file or standard output."""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tfk_transformer.atomic_write import written_whole

if TYPE_CHECKING:
    from tfk_transformer.inference.interface import ClassifierProtocol, TranslatorProtocol
    from tfk_transformer.inference.results import ScoredTarget, Translation

CHUNK = 2000  # lines that are processed together
Item = TypeVar("Item")


def given_texts(text: list[str] | None, input: Path | None) -> Iterator[str]:
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
    return iter(text)


def line_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of two files side by side.

    Raises:
        ValueError: if one file has fewer lines.
    """
    for number, (first, second) in enumerate(itertools.zip_longest(_lines(source), _lines(target)), 1):
        if first is None or second is None:
            shorter, longer = (source, target) if first is None else (target, source)
            raise ValueError(f"{shorter}: expected a line for each of {longer}, got {number - 1} lines.")
        yield first, second


def _lines(input: Path | None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, or of standard input."""
    name = "standard input" if input is None else str(input)
    with sys.stdin.buffer if input is None else input.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                byte, column = line[error.start], error.start + 1
                raise ValueError(f"{name}:{number}: expected UTF-8, got byte 0x{byte:02x} at column {column}.") from None


def translation_lines(
    translator: "TranslatorProtocol", lines: Iterator[str], prefix: str | None, settings: dict[str, Any]
) -> Iterator[str]:
    """Translate lines and yield one line each, or one line per hypothesis where `n_best` asks for several."""
    several = settings.get("n_best", 1) > 1
    number = itertools.count()
    for chunk in _chunks(lines):
        prefixes = [prefix] * len(chunk) if prefix else None
        for translation in translator.translate(chunk, prefixes=prefixes, **settings):
            yield from _hypothesis_lines(next(number), translation) if several else [translation.text]


def _hypothesis_lines(number: int, translation: "Translation") -> Iterator[str]:
    """Yield NUMBER ||| TEXT ||| SCORE for each hypothesis, as Moses and Marian write n-best lists."""
    for hypothesis in translation.hypotheses:
        yield f"{number} ||| {hypothesis.text} ||| {hypothesis.score:.6f}"


def classification_lines(classifier: "ClassifierProtocol", lines: Iterator[str], as_json: bool) -> Iterator[str]:
    """Classify lines and yield the label of each, or a JSON object with the probability of every label."""
    for chunk in _chunks(lines):
        for found in classifier.classify(chunk):
            record = {"text": found.source, "label": found.label, "probability": found.probability, "probabilities": found.probabilities}
            yield json.dumps(record, ensure_ascii=False) if as_json else found.label


def score_lines(scorer: "TranslatorProtocol", pairs: Iterator[tuple[str, str]], tokens: bool) -> Iterator[str]:
    """Score pairs and yield the log-probability of each, or a JSON object with that of every token."""
    for chunk in _chunks(pairs):
        sources, targets = [source for source, _ in chunk], [target for _, target in chunk]
        if tokens:
            yield from map(_token_line, sources, scorer.score_tokens(sources, targets))
        else:
            yield from (f"{value:.6f}" for value in scorer.score(sources, targets))


def _token_line(source: str, found: "ScoredTarget") -> str:
    record = {"source": source, "target": found.text, "log_probability": round(found.log_probability, 6), "tokens": found.tokens}
    return json.dumps({**record, "token_log_probs": [round(value, 6) for value in found.token_log_probs]}, ensure_ascii=False)


def _chunks(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Yield the items in lists of at most `CHUNK`."""
    items = _at_least_one(items)
    while chunk := list(itertools.islice(items, CHUNK)):
        yield chunk


def _at_least_one(items: Iterator[Item]) -> Iterator[Item]:
    for first in items:
        return itertools.chain([first], items)
    raise ValueError("input: expected a sentence a line, got nothing.")


def write_lines(lines: Iterable[str], output: Path | None) -> None:
    """Print lines as they come, or write them to a file that appears complete or not at all."""
    if output is None:
        for line in lines:
            print(line, flush=True)
        return
    with written_whole(output) as new:
        new.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def print_streams(
    translator: "TranslatorProtocol", lines: Iterator[str], prefix: str | None, settings: dict[str, Any], output: Path | None
) -> None:
    """Print the translation of each line while it is decoded."""
    if output is not None:
        raise ValueError("--stream: expected no --output, since a stream is printed; leave out either.")
    if prefix is not None:
        raise ValueError("--stream: expected no --prefix, which a stream does not support; leave out either.")
    for line in _at_least_one(lines):
        for part in translator.stream(line, **settings):
            print(part, end="", flush=True)
        print(flush=True)
