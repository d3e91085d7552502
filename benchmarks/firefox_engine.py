"""Compare an exported model of Firefox with Bergamot, the engine of Firefox, on the same weights.

python benchmarks/firefox_engine.py FOLDER FILE TEXTS --bergamot-python PATH [--references FILE]

FOLDER contains the unpacked files of a model, and FILE is `translate.int8.onnx` of its export. Each
engine has its own process and one thread, and translates from texts to texts. Figures are source
words per second of processor time, which other programs hardly change.
"""

import argparse
import statistics
from pathlib import Path

from engines.process import EngineSpec, RunningEngine
from engines.report import print_tables, processor, write_markdown
from sacrebleu.metrics import BLEU

# Marian's names of its int8 products: scales of the activations from the file, or of each batch.
PRECISIONS = {
    "Bergamot, scales of the file": "int8shiftAlphaAll",
    "Bergamot, scales of the batch": "int8shift",
}
ONNX = "ONNX int8"
LAYOUTS = {"one by one": True, "all at once": False}


class TextEngine(RunningEngine):
    """An engine that translates texts in a process of its own."""

    worker = "engines.texts"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("texts", type=Path, help="sentences, one per line")
    parser.add_argument("--bergamot-python", type=Path, required=True, metavar="PATH")
    parser.add_argument("--shortlist", default="", metavar="NAME", help="a file in FOLDER")
    parser.add_argument("--references", type=Path, metavar="FILE")
    parser.add_argument("--sentences", type=int, help="only the first ones")
    parser.add_argument(
        "--length-factors",
        nargs=2,
        default=("2", "2"),
        metavar=("X", "Y"),
        help="X times the source's tokens limit Bergamot's translations, and Y times plus ten this "
        "library's (2 and 2)",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args()
    texts = options.texts.read_text(encoding="utf-8").splitlines()[: options.sentences]
    engines = [TextEngine(spec, threads=1) for spec in specs(options)]
    try:
        translations, seconds = measured(engines, texts, options.rounds)
    finally:
        for engine in engines:
            engine.close()
    words = sum(len(text.split()) for text in texts)
    conditions = [
        f"{len(texts):,} sentences, {words:,} words, one thread; medians of {options.rounds} "
        "interleaved rounds, and in brackets the median ratio to the faster Bergamot.",
        f"Processor: {processor()}.",
    ]
    tables = speed_table(seconds, words), other_table(engines, translations, options)
    print_tables(conditions, tables)
    if options.markdown:
        write_markdown(options.markdown, conditions, tables)


def specs(options) -> list[EngineSpec]:
    """Return the engines to compare."""
    return [
        *(
            EngineSpec(
                name,
                "bergamot_model",
                options.folder,
                (options.length_factors[0], precision, options.shortlist),
                str(options.bergamot_python.absolute()),
            )
            for name, precision in PRECISIONS.items()
        ),
        EngineSpec(ONNX, "onnx_text", options.file, (options.length_factors[1],)),
    ]


def measured(engines: list[TextEngine], texts: list[str], rounds: int) -> tuple[dict, dict]:
    """Return the translations and the seconds of the rounds, by engine and layout.

    The first round is not counted: it loads models and makes buffers.
    """
    translations = {}
    seconds = {}
    for number in range(rounds + 1):
        for layout, one_by_one in LAYOUTS.items():
            for engine in engines:
                answer = engine.ask(texts=texts, one_by_one=one_by_one)
                translations[engine.spec.name, layout] = answer["texts"]
                if number:
                    seconds.setdefault((engine.spec.name, layout), []).append(answer["seconds"])
    return translations, seconds


def speed_table(seconds: dict, words: int) -> list[list[str]]:
    """Return words per second, and ratios to the faster Bergamot."""
    rows = [["words per second", *LAYOUTS]]
    for name in (*PRECISIONS, ONNX):
        row = [name]
        for layout in LAYOUTS:
            spent = seconds[name, layout]
            peers = [seconds[peer, layout] for peer in PRECISIONS]
            peer = min(peers, key=statistics.median)
            ratio = statistics.median(a / b for a, b in zip(peer, spent, strict=True))
            row.append(f"{words / statistics.median(spent):,.0f} ({ratio:.2f} ×)")
        rows.append(row)
    return rows


def other_table(engines: list[TextEngine], translations: dict, options) -> list[list[str]]:
    """Return memory, sizes, shares of equal translations and BLEU."""
    single, together = LAYOUTS
    first = translations[next(iter(PRECISIONS)), single]
    heading = ["engine", "version", "peak MB", "files MB", "as the first", "as one by one"]
    rows = [[*heading, "BLEU"] if options.references else heading]
    for engine in engines:
        name = engine.spec.name
        row = [
            name,
            engine.loaded["version"],
            f"{engine.peak_megabytes:.0f}",
            f"{megabytes(engine.spec, options.shortlist):.1f}",
            f"{equal_share(translations[name, single], first):.1%}",
            f"{equal_share(translations[name, together], translations[name, single]):.1%}",
        ]
        if options.references:
            references = options.references.read_text(encoding="utf-8").splitlines()
            texts = translations[name, together]
            row.append(f"{BLEU().corpus_score(texts, [references[: len(texts)]]).score:.2f}")
        rows.append(row)
    return rows


def megabytes(spec: EngineSpec, shortlist: str) -> float:
    """Return the size of the files that an engine reads."""
    if spec.path.is_file():
        return spec.megabytes()
    names = {path for pattern in ("model*.bin", "*.spm") for path in spec.path.glob(pattern)}
    if shortlist:
        names.add(spec.path / shortlist)
    return sum(path.stat().st_size for path in names) / 1e6


def equal_share(translations: list[str], expected: list[str]) -> float:
    """Return the share of equal texts."""
    return sum(a == b for a, b in zip(translations, expected, strict=True)) / len(expected)


if __name__ == "__main__":
    main()
