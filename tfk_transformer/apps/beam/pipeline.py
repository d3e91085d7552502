"""The pipeline: reads JSON lines, and writes them with translations, or to files of bad lines."""

import codecs
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import (
    KeyedModelHandler,
    ModelHandler,
    PredictionResult,
    RunInference,
)
from apache_beam.options.pipeline_options import PipelineOptions

from tfk_transformer.apps.beam.model_handler import NAMESPACE
from tfk_transformer.formats.lines import JsonObjects, decode_line
from tfk_transformer.text.outcome import Refused, TextError, check_texts

LOCAL_RUNNER = "FnApiRunner"  # Beam's runner in this process, or in processes of this machine
TRANSLATIONS = "translations"  # the names of the output files begin with this or with BAD_LINES
BAD_LINES = "bad-lines"
BAD = "bad"  # the tag of the output of a step with lines that cannot be processed


def run(
    options: Sequence[str],
    source: str,
    output: str,
    handler: ModelHandler,
    settings: dict[str, Any],
    records: JsonObjects,
) -> None:
    """Translate files of JSON lines, and print the number of texts to standard error.

    `options` are Beam's, as on a command line, `source` is the pattern of the files' names, and
    `settings` are the arguments of `OnnxTranslator.translate`. `output` gets the files
    `translations-*.jsonl` and `bad-lines-*.jsonl`, and must not contain files of an earlier run.
    """
    if not _files(source):
        raise ValueError(f"--input: expected the names of files, got {source}, which matches none.")
    bad_lines = FileSystems.join(output, f"{BAD_LINES}-*")
    if old := [*_files(FileSystems.join(output, f"{TRANSLATIONS}-*")), *_files(bad_lines)]:
        raise ValueError(
            f"--output: expected a folder without files of an earlier run, got {output} with "
            f"{old[0]}; name another folder."
        )
    pipeline = beam.Pipeline(options=_pipeline_options(options))
    lines = pipeline | "Read lines" >> beam.io.ReadFromTextWithFilename(source, coder=BytesCoder())
    outputs = translate_json_lines(lines, handler, settings, records)
    for output_lines, name in zip(outputs, (TRANSLATIONS, BAD_LINES), strict=True):
        path = FileSystems.join(output, name)
        output_lines | f"Write {name}" >> beam.io.WriteToText(
            path, file_name_suffix=".jsonl", skip_if_empty=True
        )
    result = pipeline.run()
    result.wait_until_finish()
    metrics = beam.metrics.MetricsFilter().with_namespace(NAMESPACE)
    counts: Counter[str] = Counter()  # runners without metrics have none
    for counter in result.metrics().query(metrics)["counters"]:
        counts[counter.key.metric.name] += counter.result
    hint = f", see {bad_lines}." if counts["bad_lines"] else "."
    print(
        f"{counts['texts']:,} texts translated; {counts['bad_lines']:,} bad lines{hint}",
        file=sys.stderr,
    )


def _files(pattern: str) -> list[str]:
    return [file.path for file in FileSystems.match([pattern])[0].metadata_list]


def _pipeline_options(arguments: Sequence[str]) -> PipelineOptions:
    """Return Beam's options, and refuse unknown options for the local runner.

    Beam ignores unknown options, since a job server may have additional options.
    """
    options = PipelineOptions(list(arguments))
    values = options.get_all_options()
    unknown = set(options.get_all_options(retain_unknown_options=True)) - set(values)
    if unknown and values["runner"] == LOCAL_RUNNER:
        raise ValueError(
            f"options: expected options of --help or of {LOCAL_RUNNER}, got "
            f"--{', --'.join(sorted(unknown))}; correct the name."
        )
    return options


def translate_json_lines(
    lines: beam.PCollection, handler: ModelHandler, settings: dict[str, Any], records: JsonObjects
) -> tuple[beam.PCollection, beam.PCollection]:
    """Translate the texts in JSON lines: pairs of a file's name and the bytes of a line.

    Returns the lines with translations and scores, and a JSON object with file, line and reason for
    each line that cannot be processed.
    """
    read = lines | "Read texts" >> beam.FlatMap(_read_text, records).with_outputs(BAD, main="texts")
    inference = RunInference(KeyedModelHandler(handler), inference_args=settings)
    # Without shuffling, a runner sends all lines of a file to one worker.
    results = read.texts | "Distribute" >> beam.Reshuffle() | "Translate" >> inference
    written = results | "Write lines" >> beam.FlatMap(_write_line, records).with_outputs(
        BAD, main="lines"
    )
    return written.lines, (read[BAD], written[BAD]) | "Bad lines" >> beam.Flatten()


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
        yield _bad(file, line, error.reasons[0])
    except ValueError as error:
        yield _bad(file, data.decode(errors="backslashreplace"), str(error))
    else:
        yield (file, line), text


def _write_line(
    element: tuple[tuple[str, str], PredictionResult], records: JsonObjects
) -> Iterator[Any]:
    """Yield each line with its translation and score, and to `BAD` the lines that were refused."""
    (file, line), prediction = element
    result = prediction.inference
    if isinstance(result, Refused):
        yield _bad(file, line, result.reason)
        return
    best = result.hypotheses[0]
    Metrics.counter(NAMESPACE, "texts").inc()
    Metrics.counter(NAMESPACE, "source_characters").inc(len(result.source))
    Metrics.counter(NAMESPACE, "target_characters").inc(len(best.text))
    yield records.with_values(line, best.text, round(best.score, 6))


def _bad(file: str, line: str, reason: str) -> beam.pvalue.TaggedOutput:
    Metrics.counter(NAMESPACE, "bad_lines").inc()
    record = {"file": file, "line": line, "reason": reason}
    return beam.pvalue.TaggedOutput(BAD, json.dumps(record, ensure_ascii=False))
