"""The pipeline: reads JSON lines, and writes them with translations.

Lines that cannot be processed are written to separate files.
"""

import codecs
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import (
    KeyedModelHandler,
    ModelHandler,
    PredictionResult,
    RunInference,
)

from tfk_transformer.apps.beam.model_handler import NAMESPACE
from tfk_transformer.formats.lines import JsonObjects, decode_line
from tfk_transformer.text.outcome import Refused, TextError, check_texts

TRANSLATIONS = "translations"  # the names of the output files begin with this or with BAD_LINES
BAD_LINES = "bad-lines"
BAD = "bad"  # the tag of the output of a step with lines that cannot be processed


class InputLine(NamedTuple):
    """A line of the input."""

    file: str
    line: str


def translate_json_lines(
    lines: beam.PCollection, handler: ModelHandler, settings: dict[str, Any], records: JsonObjects
) -> tuple[beam.PCollection, beam.PCollection]:
    """Translate the texts in JSON lines.

    Args:
        lines: pairs of a file's name and the bytes of a line.
        handler: the translator.
        settings: the arguments of `OnnxTranslator.translate`.
        records: the format of a line, with output fields for the translation and its score.

    Returns:
        the lines with their translations and scores, and a JSON object with file, line and reason
        for each line that cannot be processed.
    """
    read = lines | "Read texts" >> beam.FlatMap(_read_text, records).with_outputs(BAD, main="texts")
    inference = RunInference(KeyedModelHandler(handler), inference_args=settings)
    # Without shuffling, a runner sends all lines of a file to one worker.
    results = read.texts | "Distribute" >> beam.Reshuffle() | "Translate" >> inference
    written = results | "Write lines" >> beam.FlatMap(_write_line, records).with_outputs(
        BAD, main="lines"
    )
    return written.lines, (read[BAD], written[BAD]) | "Bad lines" >> beam.Flatten()


def add_files(
    pipeline: beam.Pipeline,
    source: str,
    output: str,
    handler: ModelHandler,
    settings: dict[str, Any],
    records: JsonObjects,
) -> None:
    """Add the translation of files to a pipeline; see `translate_json_lines`.

    Args:
        pipeline: the pipeline.
        source: the pattern of the files' names.
        output: the folder for the files `translations-*.jsonl` and `bad-lines-*.jsonl`.
        handler: the translator.
        settings: the arguments of `OnnxTranslator.translate`.
        records: the format of a line.
    """
    lines = pipeline | "Read lines" >> beam.io.ReadFromTextWithFilename(source, coder=BytesCoder())
    good, bad = translate_json_lines(lines, handler, settings, records)
    for output_lines, name in ((good, TRANSLATIONS), (bad, BAD_LINES)):
        path = beam.io.filesystems.FileSystems.join(output, name)
        output_lines | f"Write {name}" >> beam.io.WriteToText(
            path, file_name_suffix=".jsonl", skip_if_empty=True
        )


def _read_text(element: tuple[str, bytes], records: JsonObjects) -> Iterator[Any]:
    """Yield each record with its text, and to `BAD` each line without a text."""
    file, data = element
    try:
        # A file may start with a byte order mark, which JSON does not allow.
        line = decode_line(data.removeprefix(codecs.BOM_UTF8))
        text = records.text(line)
        # Text that cannot be encoded as UTF-8 cannot be sent to another worker.
        check_texts([text])
    except TextError as error:
        yield _bad(InputLine(file, line), error.reasons[0])
    except ValueError as error:
        yield _bad(InputLine(file, data.decode(errors="backslashreplace")), str(error))
    else:
        yield InputLine(file, line), text


def _write_line(element: tuple[InputLine, PredictionResult], records: JsonObjects) -> Iterator[Any]:
    """Yield each line with its translation and score, and to `BAD` the lines that were refused."""
    record = InputLine(*element[0])
    result = element[1].inference
    if isinstance(result, Refused):
        yield _bad(record, result.reason)
        return
    best = result.hypotheses[0]
    Metrics.counter(NAMESPACE, "texts").inc()
    Metrics.counter(NAMESPACE, "source_characters").inc(len(result.source))
    Metrics.counter(NAMESPACE, "target_characters").inc(len(best.text))
    yield records.with_values(record.line, best.text, round(best.score, 6))


def _bad(record: InputLine, reason: str) -> beam.pvalue.TaggedOutput:
    Metrics.counter(NAMESPACE, "bad_lines").inc()
    return beam.pvalue.TaggedOutput(
        BAD, json.dumps({**record._asdict(), "reason": reason}, ensure_ascii=False)
    )
