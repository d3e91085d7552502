"""Compare the decoding speed of a model's exported files with CTranslate2's, on the same weights.

python benchmarks/decoding.py BUNDLE EXPORT --data folder:multi30k:en-de
    the sentences of the split "test"
python benchmarks/decoding.py BUNDLE EXPORT --random 24 --threads 1 --processor-time
    random sources; processor milliseconds a sentence, which other programs hardly change

Figures are medians of interleaved rounds: sentences per second, and in brackets the ratio to
CTranslate2's best in the same column. Each engine is also measured with one batch per thread in
parallel ("2 at once"). The tables are printed only if CTranslate2 float32 gives the ids of
`generate.onnx`. With --student, a second model translates the same sentences with its own
tokenizer. `pip install -e '.[bench]'` installs CTranslate2.
"""

import random
import statistics
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from harness import (
    EngineSpec,
    RunningEngine,
    arguments_parser,
    megabytes,
    processor,
    ratio_to_best,
    report,
    seconds_of,
    share_of_equal,
    started,
    take_turns,
)
from sacrebleu.metrics import BLEU

from tfk_transformer.constants import END_ID, UNKNOWN_ID
from tfk_transformer.runtime_environment import load_tensorflow

PORTABLE, CTRANSLATE2, STUDENT = "ONNX portable", "CTranslate2", "student"
LEAST_AGREEMENT, CHECKED_BATCH, RANDOM_LENGTH = 0.99, 32, 15


class Task(NamedTuple):
    """Sentences in the ids of a model, sorted by length."""

    translator: object  # a `Translator`
    export: Path
    rows: list[list[int]]  # source ids, end token included
    sources: Sequence[str] = ()  # none of random ids
    references: Sequence[str] = ()

    def chosen(self, batch_size: int, single: int) -> list[list[int]]:
        """Return the rows for a batch size: one by one only `single`, spread over the lengths."""
        return self.rows[:: max(1, len(self.rows) // single)] if batch_size == 1 else self.rows


class Column(NamedTuple):
    """A search and what every engine took for it."""

    beam_size: int
    batch_size: int
    sentences: int
    seconds: dict[str, list[float]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark. An error prints one line and exits with status 1."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            conditions, tables = run(options, Path(folder))
        except (ValueError, ImportError, OSError) as error:
            sys.exit(f"decoding.py: {error}")
    report(conditions, tables, options.markdown)


def _parse(arguments: Sequence[str] | None) -> Namespace:
    parser = arguments_parser(__doc__)
    add = parser.add_argument
    add("bundle", type=Path)
    add("export", type=Path, help="the bundle's exported files")
    add("--data", metavar="SPEC", help="see docs/data.md; the split 'test' is translated")
    add("--source", type=Path, metavar="FILE", help="sentences, instead of --data")
    add("--reference", type=Path, metavar="FILE", help="their translations")
    add("--random", type=int, metavar="N", help="N sources of random tokens, instead of --data")
    add("--onnx", action="append", default=[], metavar="NAME=FILE", help="one more ONNX file")
    add("--student", nargs=2, type=Path, metavar=("BUNDLE", "EXPORT"), help="a second model")
    add("--map", metavar="SPEC", help="text pairs of a vocabulary map for CTranslate2 int8")
    add("--max-length", type=int, default=128, help="greatest length of a target in tokens (128)")
    add("--beam", type=int, action="append", help="beam sizes (1 and 4)")
    add("--batch", type=int, action="append", help="batch sizes (1, 8, 32 and 128)")
    add("--sentences", type=int, default=200, help="sentences translated one by one (200)")
    add("--repeats", type=int, default=3, help="rounds (3)")
    add("--threads", type=int, default=2, help="of each engine (2)")
    add("--processor-time", action="store_true", help="report processor milliseconds a sentence")
    add("--timed", default="", metavar="TEXT", help="time only engines with TEXT in their name")
    return parser.parse_args(arguments)


def run(options: Namespace, folder: Path) -> tuple[list[str], list[list[list[str]]]]:
    """Return the conditions and the tables; `folder` takes the files for CTranslate2.

    Raises:
        ValueError: if something is missing, or CTranslate2's translations are not this model's.
    """
    tasks = {"": task_of(options)}
    if options.student:
        tasks[STUDENT] = student_task(tasks[""], *options.student)
    specs = list(engine_specs(tasks, options, folder))
    if not any(options.timed in spec.name for spec in specs):
        names = [spec.name for spec in specs]
        raise ValueError(f"--timed: expected part of one of the names {names}.")
    for spec in specs:
        with started([spec]):
            pass  # its files come from the disk before the loading time is measured
    with started(specs) as engines:
        found = {}
        for engine in engines:
            name = engine.spec.name
            found[name] = _translations(engine, _task(tasks, name), options)
            if name == PORTABLE:
                check_agreement(found[f"{CTRANSLATE2} float32"], found[PORTABLE])
        timed = [engine for engine in engines if options.timed in engine.spec.name]
        columns = [
            _column(timed, tasks, beam, batch, options)
            for beam in _beams(options)
            for batch in options.batch or (1, 8, 32, 128)
        ]
        needs = _needs(engines, found, tasks)
    return _conditions(tasks, options, found), [_speeds(timed, columns, options), needs]


def task_of(options: Namespace) -> Task:
    """Return the sentences of the command line."""
    load_tensorflow()
    from tfk_transformer.pipelines.translator import Translator

    translator = Translator.load(options.bundle)
    if options.random:
        draw = random.Random(0)
        pieces = range(UNKNOWN_ID + 1, translator.model.config.source_vocab_size)
        rows = [[*draw.choices(pieces, k=RANDOM_LENGTH - 1), END_ID] for _ in range(options.random)]
        return Task(translator, options.export, rows)
    pairs = _pairs(options)
    ids = translator.source_tokenizer.encode([source for source, _ in pairs])
    ordered = sorted(zip(ids, pairs, strict=True), key=lambda item: len(item[0]))
    sources, references = zip(*(pair for _, pair in ordered), strict=True)
    return Task(
        translator, options.export, [[*row, END_ID] for row, _ in ordered], sources, references
    )


def _pairs(options: Namespace) -> list[tuple[str, str]]:
    if options.source and options.reference:
        sides = (options.source, options.reference)
        texts = [path.read_text(encoding="utf-8").splitlines() for path in sides]
        return list(zip(*texts, strict=True))
    if not options.data:
        raise ValueError("--data: expected data, --source and --reference, or --random.")
    from tfk_transformer import datasets

    return [(pair.source, pair.target) for pair in datasets.load(options.data).pairs("test")]


def student_task(task: Task, bundle: Path, export: Path) -> Task:
    """Return the same sentences, in the same order, in the ids of another model."""
    if not task.sources:
        raise ValueError("--student: expected sentences to translate, got --random.")
    from tfk_transformer.pipelines.translator import Translator

    translator = Translator.load(bundle)
    rows = [[*ids, END_ID] for ids in translator.source_tokenizer.encode(list(task.sources))]
    return task._replace(translator=translator, export=export, rows=rows)


def engine_specs(tasks: dict[str, Task], options: Namespace, folder: Path) -> Iterator[EngineSpec]:
    """Yield the engines, CTranslate2's first, and write its folders below `folder`."""
    kinds = [("float32", None), ("int8", None), *([("int8", options.map)] if options.map else [])]
    engines = []
    for quantization, pairs in kinds:
        out = folder / f"{CTRANSLATE2} {quantization}{', map' if pairs else ''}"
        write_ids_model(tasks[""].translator, out, quantization, pairs)
        engines.append((out.name, "engines.ctranslate2_model", (str(out), quantization)))
    files = onnx_files(tasks[""].export, options.onnx)
    if STUDENT in tasks:
        theirs = onnx_files(tasks[STUDENT].export, ())
        files |= {f"{STUDENT}, {name}": path for name, path in theirs.items()}
    engines += [(name, "engines.onnx_file", (str(path),)) for name, path in files.items()]
    threads = options.threads
    for name, module, arguments in engines:
        yield EngineSpec(name, module, arguments, threads)
        if threads > 1:
            at_once = f"{name}, {threads} at once"
            yield EngineSpec(at_once, module, (*arguments, threads), threads)


def write_ids_model(translator, out: Path, quantization: str, pairs: str | None) -> None:
    """Write a folder for CTranslate2 as the export does, with the ids as tokens."""
    from tfk_transformer.export.exporting import with_shortlist
    from tfk_transformer.export.to_libraries.ctranslate2_files import write_ctranslate2

    config = translator.model.config
    sizes = (config.source_vocab_size, config.target_vocab_size)
    source_tokens, target_tokens = ([str(i) for i in range(size)] for size in sizes)
    shortlist = with_shortlist(translator, pairs).shortlist if pairs else None
    kind = None if quantization == "float32" else quantization
    write_ctranslate2(translator.model, source_tokens, target_tokens, out, kind, shortlist)


def onnx_files(export: Path, more: Sequence[str]) -> dict[str, Path]:
    """Return generate.onnx, its profiles generate.NAME.onnx, and NAME=FILE of `more`, by name."""
    files = {PORTABLE: export / "generate.onnx"}
    for path in sorted(export.glob("generate.*.onnx")):
        files[f"ONNX {path.name.split('.')[1]}"] = path
    for text in more:
        name, _, path = text.partition("=")
        if not (name and path):
            raise ValueError(f"--onnx: expected NAME=FILE, got '{text}'.")
        files[f"ONNX {name}"] = Path(path)
    return files


def check_agreement(found: dict[int, list], expected: dict[int, list]) -> None:
    """Refuse a peer with other translations: its times would be those of another model."""
    for beam, rows in expected.items():
        share = share_of_equal(found[beam], rows)
        if share < LEAST_AGREEMENT:
            raise ValueError(
                f"{CTRANSLATE2}: expected the ids of {PORTABLE} on at least {LEAST_AGREEMENT:.0%} "
                f"of sentences with beam {beam}, got {share:.1%}."
            )


def _beams(options: Namespace) -> Sequence[int]:
    return options.beam or (1, 4)


def _task(tasks: dict[str, Task], name: str) -> Task:
    return tasks[STUDENT if name.startswith(STUDENT) else ""]


def _translations(engine: RunningEngine, task: Task, options: Namespace) -> dict[int, list]:
    request = {"batch_size": CHECKED_BATCH, "max_length": options.max_length}
    return {
        beam: engine.ask(rows=task.rows, beam_size=beam, **request).result
        for beam in _beams(options)
    }


def _column(engines, tasks, beam: int, batch: int, options: Namespace) -> Column:
    search = {"beam_size": beam, "batch_size": batch, "max_length": options.max_length}
    runs = {}
    for engine in engines:
        rows = _task(tasks, engine.spec.name).chosen(batch, options.sentences)
        # Buffers of the largest size are made before the clock starts, for two batches at once.
        engine.ask(rows=rows[-2 * batch :], **search)
        runs[engine.spec.name] = partial(engine.ask, rows=rows, **search)
    field = "processor_seconds" if options.processor_time else "seconds"
    seconds = seconds_of(take_turns(runs, options.repeats), field)
    return Column(beam, batch, len(rows), seconds)


def _speeds(engines, columns: list[Column], options: Namespace) -> list[list[str]]:
    titles = [f"{_search(column.beam_size)}, batch {column.batch_size}" for column in columns]
    names = [engine.spec.name for engine in engines]
    return [
        ["engine", *titles],
        *([name, *(_speed(c, name, options.processor_time) for c in columns)] for name in names),
    ]


def _speed(column: Column, name: str, processor_time: bool) -> str:
    seconds = statistics.median(column.seconds[name]) / column.sentences
    figure = f"{1000 * seconds:.3g}" if processor_time else f"{1 / seconds:.1f}"
    peers = [peer for peer in column.seconds if peer.startswith(CTRANSLATE2)]
    ratio = ratio_to_best(column.seconds, name, peers)
    return figure if ratio is None else f"{figure} ({ratio:.2f} ×)"


def _needs(engines, found: dict, tasks: dict[str, Task]) -> list[list[str]]:
    beams = list(found[PORTABLE])
    figures = [f"{what}, {_search(beam)}" for what in ("same ids", "BLEU") for beam in beams]
    table = [["engine", "version", "load s", "peak MB", "files MB", *figures]]
    for engine in engines:
        name, rows = engine.spec.name, found[engine.spec.name]
        task = _task(tasks, name)
        ours = found[f"{STUDENT}, {PORTABLE}" if name.startswith(STUDENT) else PORTABLE]
        table.append(
            [
                name,
                engine.version,
                f"{engine.load_seconds:.2f}",
                f"{engine.peak_megabytes:.0f}",
                f"{megabytes(Path(engine.spec.arguments[0])):.1f}",
                *(f"{share_of_equal(rows[beam], ours[beam]):.1%}" for beam in beams),
                *(_bleu(task, rows[beam]) for beam in beams),
            ]
        )
    return table


def _bleu(task: Task, rows: list[list[int]]) -> str:
    if not task.references:
        return ""
    texts = task.translator.target_tokenizer.decode(rows)
    return f"{BLEU().corpus_score(texts, [list(task.references)]).score:.2f}"


def _search(beam_size: int) -> str:
    return "greedy" if beam_size == 1 else f"beam {beam_size}"


def _conditions(tasks: dict[str, Task], options: Namespace, found: dict) -> list[str]:
    count, limit = len(tasks[""].rows), options.max_length
    cut = {b: sum(len(row) == limit for row in rows) for b, rows in found[PORTABLE].items()}
    ended = ", ".join(f"{number} in {_search(beam)}" for beam, number in cut.items())
    sizes = ", ".join(f"{t.translator.model.count_params():,}" for t in tasks.values())
    unit = "Processor milliseconds a sentence" if options.processor_time else "Sentences a second"
    return [
        f"{unit}; median of {options.repeats} interleaved rounds, ratio to {CTRANSLATE2}'s best.",
        f"{count:,} sentences in batches of similar length, {options.sentences} one by one.",
        f"Threads of each engine: {options.threads}. Processor: {processor()}.",
        f"Parameters: {sizes}. No length penalty. {ended} reached {limit} tokens.",
    ]


if __name__ == "__main__":
    main()
