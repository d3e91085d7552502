"""Runs the pipeline on files, and prints a summary."""

import sys
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import ModelHandler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult

from tfk_transformer.apps.beam.model_handler import NAMESPACE
from tfk_transformer.apps.beam.pipeline import BAD_LINES, TRANSLATIONS, add_files
from tfk_transformer.formats.lines import JsonObjects

LOCAL_RUNNER = "FnApiRunner"  # Beam's runner in this process, or in processes of this machine


def run(
    options: Sequence[str],
    source: str,
    output: str,
    handler: ModelHandler,
    settings: dict[str, Any],
    records: JsonObjects,
) -> None:
    """Run the pipeline of `add_files`, and print the number of texts to standard error.

    Args:
        options: Beam's options, as on a command line.
        source: the pattern of the files' names.
        output: the folder.
        handler: the translator.
        settings: the arguments of `OnnxTranslator.translate`.
        records: the format of a line.

    Raises:
        ValueError: if no file matches the pattern, the folder contains files of an earlier run, or
            an option is unknown.
    """
    if not _files(source):
        raise ValueError(f"--input: expected the names of files, got {source}, which matches none.")
    translations = FileSystems.join(output, f"{TRANSLATIONS}-*")
    bad_lines = FileSystems.join(output, f"{BAD_LINES}-*")
    if old := [*_files(translations), *_files(bad_lines)]:
        raise ValueError(
            f"--output: expected a folder without files of an earlier run, got {output} with "
            f"{old[0]}; name another folder."
        )
    pipeline = beam.Pipeline(options=_pipeline_options(options))
    add_files(pipeline, source, output, handler, settings, records)
    result = pipeline.run()
    result.wait_until_finish()
    counts = _counters(result)
    bad = counts.get("bad_lines", 0)
    hint = f", see {bad_lines}." if bad else "."
    print(f"{counts.get('texts', 0):,} texts translated; {bad:,} bad lines{hint}", file=sys.stderr)


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


def _files(pattern: str) -> list[str]:
    return [file.path for file in FileSystems.match([pattern])[0].metadata_list]


def _counters(result: PipelineResult) -> dict[str, int]:
    """Return the sums of this library's counters by name. Runners without metrics have none."""
    metrics = beam.metrics.MetricsFilter().with_namespace(NAMESPACE)
    sums: dict[str, int] = {}
    for counter in result.metrics().query(metrics)["counters"]:
        name = counter.key.metric.name
        sums[name] = sums.get(name, 0) + counter.result
    return sums
