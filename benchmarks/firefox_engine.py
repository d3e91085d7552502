"""Compare an exported model of Firefox with Bergamot, Firefox's engine, on the same weights.

python benchmarks/firefox_engine.py FOLDER FILE TEXTS --bergamot-python PATH [--references FILE]

FOLDER has the unpacked files of a model, and FILE is `translate.int8.onnx` of its export. Each
engine has its own process and one thread. Figures are source words per second of processor time,
from texts to texts. `pip install bergamot==0.4.5` requires Python 3.10 or earlier.
"""

import statistics
from functools import partial
from pathlib import Path

from harness import (
    EngineSpec,
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

# Marian's names of its int8 products: scales of the activations from the file, or of each batch.
PRECISIONS = {
    "Bergamot, scales of the file": "int8shiftAlphaAll",
    "Bergamot, scales of the batch": "int8shift",
}
ONNX = "ONNX int8"
GROUPS = {"one by one": 1, "all at once": None}


def main() -> None:
    """Run the benchmark."""
    parser = arguments_parser(__doc__)
    add = parser.add_argument
    add("folder", type=Path)
    add("file", type=Path)
    add("texts", type=Path, help="sentences, one per line")
    add("--bergamot-python", type=Path, required=True, metavar="PATH")
    add("--shortlist", default="", metavar="NAME", help="a file in FOLDER")
    add("--references", type=Path, metavar="FILE")
    add("--length-factor", type=float, default=2.0, help="limit of tokens, by the source's (2)")
    add("--rounds", type=int, default=5)
    options = parser.parse_args()
    texts = options.texts.read_text(encoding="utf-8").splitlines()
    words = sum(len(text.split()) for text in texts)
    speeds, equal = {name: [name] for name in (*PRECISIONS, ONNX)}, {}
    with started(specs(options)) as engines:
        for group_size in GROUPS.values():
            runs = {
                engine.spec.name: partial(
                    engine.ask, texts=texts, group_size=group_size, **settings_of(engine, options)
                )
                for engine in engines
            }
            answers = take_turns(runs, options.rounds, warm_up=True)
            seconds = seconds_of(answers, "processor_seconds")
            for name, given in seconds.items():
                ratio = ratio_to_best(seconds, name, list(PRECISIONS))
                speeds[name].append(f"{words / statistics.median(given):,.0f} ({ratio:.2f} ×)")
            equal[group_size] = {n: texts_of(n, given[-1].result) for n, given in answers.items()}
        needs = needs_table(engines, equal, options)
    conditions = [
        f"{len(texts):,} sentences, {words:,} words, one thread; medians of {options.rounds} "
        "interleaved rounds, and the median ratio to the faster Bergamot.",
        f"Processor: {processor()}.",
    ]
    tables = [["words per second", *GROUPS], *speeds.values()], needs
    report(conditions, tables, options.markdown)


def specs(options) -> list[EngineSpec]:
    """Return the engines to compare."""
    python = str(options.bergamot_python.absolute())
    common = options.length_factor, options.shortlist
    bergamot = [
        EngineSpec(
            name, "engines.bergamot_model", (str(options.folder), precision, *common), 1, python
        )
        for name, precision in PRECISIONS.items()
    ]
    return [*bergamot, EngineSpec(ONNX, "engines.any_model", (str(options.file),))]


def settings_of(engine, options) -> dict[str, float]:
    """Return the settings of a request; Bergamot has them from the start."""
    return {"max_length_factor": options.length_factor} if engine.spec.name == ONNX else {}


def texts_of(name: str, result: list) -> list[str]:
    """Return the best translations."""
    return [hypotheses[0][0] for hypotheses in result] if name == ONNX else result


def needs_table(engines, translations: dict, options) -> list[list[str]]:
    """Return memory, sizes, shares of equal translations and BLEU."""
    single, together = translations.values()
    first = next(iter(single.values()))
    rows = [["engine", "version", "peak MB", "MB", "as the first", "as one by one", "BLEU"]]
    for engine in engines:
        name = engine.spec.name
        bleu = ""
        if options.references:
            references = options.references.read_text(encoding="utf-8").splitlines()
            bleu = f"{BLEU().corpus_score(together[name], [references]).score:.2f}"
        rows.append(
            [
                name,
                engine.version,
                f"{engine.peak_megabytes:.0f}",
                f"{megabytes(Path(engine.spec.arguments[0])):.1f}",
                f"{share_of_equal(single[name], first):.1%}",
                f"{share_of_equal(together[name], single[name]):.1%}",
                bleu,
            ]
        )
    return rows


if __name__ == "__main__":
    main()
