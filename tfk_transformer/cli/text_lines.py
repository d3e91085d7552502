"""Lines of text on their way through the command line: from arguments, files or standard input, to files or standard output."""

import itertools
import json
import sys
from pathlib import Path

from tfk_transformer.atomic_write import written_whole

LINES_AT_ONCE = 2000


def given_texts(text: list[str] | None, input: Path | None):
    """Return the texts to translate, from the arguments or streamed from a file or standard input."""
    if not text:
        return _lines(input)
    if input is not None:
        raise ValueError("TEXT: expected sentences or --input, got both; give one.")
    blank = [number for number, sentence in enumerate(text, 1) if not sentence.strip()]
    if blank:
        raise ValueError(f"TEXT: expected a sentence, got blank text as number {blank[0]}.")
    return iter(text)


def line_pairs(source: Path, target: Path):
    """Stream the lines of two files that have as many."""
    for number, pair in enumerate(itertools.zip_longest(_lines(source), _lines(target)), 1):
        if None in pair:
            shorter, longer = (source, target) if pair[0] is None else (target, source)
            raise ValueError(f"{shorter}: expected a line for each of {longer}, got {number - 1} lines.")
        yield pair


def _lines(input: Path | None):
    """Stream the lines of a file or of standard input, as UTF-8."""
    name = "standard input" if input is None else str(input)
    with sys.stdin.buffer if input is None else input.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{name}:{number}: expected UTF-8, got byte 0x{line[error.start]:02x} at column {error.start + 1}."
                ) from None


def translations(translator, lines, prefix: str | None, settings: dict):
    """Translate a stream, some thousand lines at a time."""
    for chunk in _chunks(lines):
        prefixes = [prefix] * len(chunk) if prefix else None
        yield from (translation.text for translation in translator.translate(chunk, prefixes=prefixes, **settings))


def scores(scorer, pairs, tokens: bool):
    """Score a stream of pairs, some thousand at a time."""
    for chunk in _chunks(pairs):
        sides = [list(side) for side in zip(*chunk, strict=True)]
        yield from _token_lines(sides[0], scorer.score_tokens(*sides)) if tokens else (f"{value:.6f}" for value in scorer.score(*sides))


def _token_lines(sources: list[str], scored):
    for source, found in zip(sources, scored, strict=True):
        record = {"source": source, "target": found.text, "log_probability": round(found.score, 6), "tokens": found.tokens}
        yield json.dumps({**record, "token_log_probs": [round(value, 6) for value in found.token_scores]}, ensure_ascii=False)


def _chunks(lines):
    """Yield what a stream gives, some thousand at a time."""
    lines = _at_least_one(lines)
    while chunk := list(itertools.islice(lines, LINES_AT_ONCE)):
        yield chunk


def _at_least_one(lines):
    first = next(lines, None)
    if first is None:
        raise ValueError("input: expected a sentence a line, got nothing.")
    return itertools.chain([first], lines)


def write_lines(lines, output: Path | None) -> None:
    """Print lines as they come, or write them to a file, whole or not at all."""
    if output is None:
        for line in lines:
            print(line, flush=True)
        return
    with written_whole(output) as new:
        new.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def print_streams(translator, lines, prefix: str | None, settings: dict, output: Path | None) -> None:
    """Print the translation of each line while it comes."""
    if output is not None:
        raise ValueError("--stream: expected no --output, since a stream is printed; leave out either.")
    if prefix is not None:
        raise ValueError("--stream: expected no --prefix, which a stream does not know; leave out either.")
    for line in _at_least_one(lines):
        for part in translator.stream(line, **settings):
            print(part, end="", flush=True)
        print(flush=True)
