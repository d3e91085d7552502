"""Runs the pipeline from files to files, and prints what it did."""

import sys
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import ModelHandler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult

from tfk_transformer.beam.model_handler import NAMESPACE
from tfk_transformer.beam.pipeline import BAD_LINES, TRANSLATIONS, add_files
from tfk_transformer.text_files.records import JsonObjects

LOCAL_RUNNER = "FnApiRunner"  # Beam's runner in this process, or in processes of this machine


def run(
    options: Sequence[str],
    source: str,
    output: str,
    handler: ModelHandler,
    settings: dict[str, Any],
    records: JsonObjects,
) -> None:
    """Run the pipeline of `add_files` to its end, and print to standard error how many texts it
    translated.

    Args:
        options: Beam's options, as on a command line.
        source: the pattern of the files' names.
        output: the folder.
        handler: the translator.
        settings: the arguments of `OnnxTranslator.translate`.
        records: what a line is.

    Raises:
        ValueError: if no file has such a name, the folder has files of an earlier run, or an option
            is unknown.
    """
    if not _files(source):
        raise ValueError(f"--input: expected the names of files, got {source}, which matches none.")
    if old := [
        path
        for name in (TRANSLATIONS, BAD_LINES)
        for path in _files(FileSystems.join(output, f"{name}-*"))
    ]:
        raise ValueError(
            f"--output: expected a folder without files of an earlier run, got {output} with "
            f"{old[0]}; name another folder."
        )
    pipeline = beam.Pipeline(options=_checked_options(options))
    add_files(pipeline, source, output, handler, settings, records)
    result = pipeline.run()
    result.wait_until_finish()
    print(_summary(_counters(result), output), file=sys.stderr)


def _checked_options(given: Sequence[str]) -> PipelineOptions:
    """Return Beam's options. Beam itself ignores what it does not know, since a job server may have
    further options.
    """
    options = PipelineOptions(list(given))
    known = options.get_all_options()
    unknown = set(options.get_all_options(retain_unknown_options=True)) - set(known)
    if unknown and known["runner"] == LOCAL_RUNNER:
        raise ValueError(
            f"options: expected those of --help and of {LOCAL_RUNNER}, got "
            f"--{', --'.join(sorted(unknown))}; correct the name."
        )
    return options


def _files(pattern: str) -> list[str]:
    return [found.path for match in FileSystems.match([pattern]) for found in match.metadata_list]


def _counters(result: PipelineResult) -> dict[str, int]:
    """Return the sums of this library's counters by name; nothing if the runner has no metrics."""
    found = result.metrics().query(beam.metrics.MetricsFilter().with_namespace(NAMESPACE))[
        "counters"
    ]
    sums: dict[str, int] = {}
    for counter in found:
        name = counter.key.metric.name
        sums[name] = sums.get(name, 0) + counter.result
    return sums


def _summary(counts: dict[str, int], output: str) -> str:
    bad = counts.get("bad_lines", 0)
    return f"{counts.get('texts', 0):,} texts translated; {bad:,} bad lines" + (
        f", see {FileSystems.join(output, BAD_LINES)}-*." if bad else "."
    )
