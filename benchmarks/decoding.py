"""Compare the speed of one model's exported files with CTranslate2 and PyTorch, on the same weights
and sentences.

python benchmarks/decoding.py BUNDLE EXPORT --data folder:multi30k:de-en
    natural lengths, the split "test"
python benchmarks/decoding.py BUNDLE --forced
    random weights of BUNDLE's shape, 15 tokens to 30

Every engine has its own process, and the engines take turns. Speeds are medians of interleaved
rounds, in sentences per second, and in brackets relative to CTranslate2's best in the same column.
Engines that support it are also measured with one batch per thread in parallel ("2 at once")
instead of one batch on all threads. The table is only printed if CTranslate2's translations equal
ours. `pip install -e '.[bench]'` installs the peers; --peers-python runs those of another
environment with ctranslate2 and torch. The conversion for CTranslate2 is the export's, and needs
ctranslate2 here. With --student, a second model translates the same sentences with its own
tokenizer: a student next to its teacher.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engines.process import EngineSpec, RunningEngine
from engines.report import Footprint, Report, processor, search_name
from engines.tasks import Task, forced_task, natural_task, student_task
from engines.trial import agreement, check_agreement, measure, translations
from engines.weights import write_weights

PORTABLE = "ONNX portable"
CTRANSLATE2 = "CTranslate2 float32"
STUDENT = "student"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark. An error prints one line and exits with status 1."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = run(options, Path(folder))
        except (ValueError, ImportError, OSError) as error:
            sys.exit(f"decoding.py: {error}")
    report.print()
    if options.json:
        report.write_json(options.json)
    if options.markdown:
        report.write_markdown(options.markdown)


def _parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument(
        "export", type=Path, nargs="?", help="the bundle's exported files; not with --forced"
    )
    parser.add_argument(
        "--onnx",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="one more file like generate.onnx",
    )
    parser.add_argument(
        "--student",
        nargs=2,
        type=Path,
        metavar=("BUNDLE", "EXPORT"),
        help="a second model that translates the sentences",
    )
    parser.add_argument(
        "--map",
        metavar="SPEC",
        help="text pairs: measure CTranslate2 also with the shortlist of these as vocabulary map",
    )
    parser.add_argument(
        "--data", metavar="SPEC", help="see docs/data.md; the split 'test' is translated"
    )
    parser.add_argument("--source", type=Path, metavar="FILE", help="sentences, in place of --data")
    parser.add_argument("--reference", type=Path, metavar="FILE", help="their translations")
    parser.add_argument("--forced", action="store_true", help="random weights and forced lengths")
    parser.add_argument(
        "--max-length",
        type=int,
        default=128,
        help="greatest length of a target in tokens, for all (128)",
    )
    parser.add_argument("--beam", type=int, action="append", help="beam sizes (1 and 4)")
    parser.add_argument("--batch", type=int, action="append", help="batch sizes (1, 8, 32 and 128)")
    parser.add_argument(
        "--sentences",
        type=int,
        default=200,
        help="how many are translated one by one, spread over the lengths (200)",
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds (3)")
    parser.add_argument("--threads", type=int, default=2, help="of each engine (2)")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="leave out engines that begin with NAME",
    )
    parser.add_argument(
        "--timed",
        default="",
        metavar="TEXT",
        help="time only engines whose names contain TEXT, such as '2 at once'",
    )
    parser.add_argument(
        "--peers-python",
        default=sys.executable,
        metavar="PATH",
        help="interpreter that has ctranslate2 and torch",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


def run(options, folder: Path) -> Report:
    """Measure; `folder` takes what the engines need.

    Raises:
        ValueError: if something is missing, an engine does not run, or CTranslate2's translations
            are not ours.
    """
    task = forced_task(options, folder) if options.forced else natural_task(options)
    tasks = {
        "": task,
        **({STUDENT: student_task(task, *options.student)} if options.student else {}),
    }
    specs = [
        spec
        for spec in engine_specs(tasks, options, folder)
        if not any(map(spec.name.startswith, options.without))
    ]
    for name in (PORTABLE, CTRANSLATE2):
        if name not in [spec.name for spec in specs]:
            raise ValueError(
                f"engines: expected '{name}' among them, since all are compared with it, got "
                f"{[s.name for s in specs]}."
            )
    if not any(options.timed in spec.name for spec in specs):
        raise ValueError(
            f"--timed: expected part of the name of an engine, got '{options.timed}', which none "
            f"has of {[spec.name for spec in specs]}."
        )
    engines = []
    try:
        for spec in specs:
            # Its files come from the disk but once, before the clock of loading counts.
            RunningEngine(spec, options.threads).close()
            engines.append(RunningEngine(spec, options.threads))
        found = {}
        # CTranslate2 and the portable file come first, so that a run in vain is short.
        for engine in engines:
            found[engine.spec.name] = translations(engine, tasks[engine.spec.model].trial)
            if PORTABLE in found and CTRANSLATE2 in found:
                check_agreement(found[CTRANSLATE2], found[PORTABLE], CTRANSLATE2, PORTABLE)
        timed = [engine for engine in engines if options.timed in engine.spec.name]
        trials = {model: task.trial for model, task in tasks.items()}
        measured = measure(timed, trials, options.repeats)
        footprints = [_footprint(engine, found, tasks[engine.spec.model]) for engine in engines]
    finally:
        for engine in engines:
            engine.close()
    return Report(
        _conditions(tasks, options, found),
        measured,
        footprints,
        [name for name in found if name.startswith("CTranslate2")],
    )


def engine_specs(tasks: dict[str, Task], options, folder: Path) -> list[EngineSpec]:
    """Return every engine there is for the tasks, which are named after models, and write what the
    peers need into `folder`.
    """
    task, weights = tasks[""], folder / "weights"
    write_weights(task.translator.model, weights)
    specs = []
    for quantization, pairs in (
        ("float32", None),
        ("int8", None),
        *([("int8", options.map)] if options.map else []),
    ):
        out = folder / f"CTranslate2 {quantization}{', map' if pairs else ''}"
        _convert(task.translator, out, quantization, pairs)
        specs.append(
            EngineSpec(out.name, "ctranslate2_model", out, (quantization,), options.peers_python)
        )
    specs += [
        EngineSpec(name, "onnx_file", path)
        for name, path in _onnx_files(task.export, options.onnx).items()
    ]
    if STUDENT in tasks:
        files = _onnx_files(tasks[STUDENT].export, ())
        specs += [
            EngineSpec(f"{STUDENT}, {name}", "onnx_file", path, model=STUDENT)
            for name, path in files.items()
        ]
    if options.threads > 1:
        specs = [layout for spec in specs for layout in (spec, spec.side_by_side(options.threads))]
    specs.append(EngineSpec("SavedModel", "saved_model", task.export / "saved_model"))
    for name, cache in (("PyTorch, no cache", "no-cache"), ("PyTorch, cache", "cache")):
        specs.append(
            EngineSpec(
                name, "torch_model", weights, (cache,), options.peers_python, greedy_only=True
            )
        )
    return specs


def _convert(translator, out: Path, quantization: str, pairs: str | None) -> None:
    from engines.ctranslate2_conversion import convert  # only now: it loads Keras

    from tfk_transformer.export.exporting import with_shortlist

    try:
        convert(
            translator.model,
            out,
            quantization,
            with_shortlist(translator, pairs).shortlist if pairs else None,
        )
    except ModuleNotFoundError as error:
        raise ValueError(
            f"CTranslate2: the conversion needs {error.name}: pip install -e '.[ctranslate2]', "
            "here."
        ) from None


def _onnx_files(export: Path, more: Sequence[str]) -> dict[str, Path]:
    """Return generate.onnx, its profiles beside it (generate.NAME.onnx), and NAME=FILE of the
    command line, by name.
    """
    files = {PORTABLE: export / "generate.onnx"}
    files |= {
        f"ONNX {path.name.split('.')[1]}": path for path in sorted(export.glob("generate.*.onnx"))
    }
    for text in more:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise ValueError(f"--onnx: expected NAME=FILE, got '{text}'.")
        files[f"ONNX {name}"] = Path(path)
    return files


def _footprint(engine: RunningEngine, found: dict, task: Task) -> Footprint:
    spec, loaded = engine.spec, engine.loaded
    ours = f"{spec.model}, {PORTABLE}" if spec.model else PORTABLE
    same = (
        {beam: agreement(rows, found[ours][beam]) for beam, rows in found[spec.name].items()}
        if ours in found
        else {}
    )
    bleu = (
        {beam: task.bleu(rows) for beam, rows in found[spec.name].items()}
        if task.references
        else {}
    )
    return Footprint(
        spec.name,
        loaded["version"],
        loaded["load_seconds"],
        engine.peak_megabytes,
        spec.megabytes(),
        same,
        bleu,
    )


def _conditions(tasks: dict[str, Task], options, found: dict) -> list[str]:
    task = tasks[""]
    cut = {
        beam: sum(len(row) == options.max_length for row in rows)
        for beam, rows in found[PORTABLE].items()
    }
    lines = [
        (
            f"{task.what}; batches of neighbours in length; median of {options.repeats} "
            "interleaved "
            "rounds."
        ),
        f"Batch size 1: {len(task.trial.chosen(1))} of them, spread over the lengths.",
        f"Threads of each engine: {options.threads}. Processor: {processor()}.",
        (
            "No length penalty: CTranslate2's formula differs, and without a penalty both search "
            "for "
            "the same hypothesis."
        ),
    ]
    if STUDENT in tasks:
        sizes = [f"{each.translator.model.count_params():,}" for each in (tasks[STUDENT], task)]
        lines.append(
            f"The student has {sizes[0]} parameters, the other model {sizes[1]}. Each has its own "
            "tokenizer."
        )
    if task.references:
        ended = ", ".join(f"{number} in {search_name(beam)}" for beam, number in cut.items())
        lines.append(
            f"Targets end at {options.max_length} tokens in every engine. Translations that "
            f"reached this length: {ended}."
        )
    return lines


if __name__ == "__main__":
    main()
