"""Compare one model as Keras, SavedModel and ONNX on the same sentences: speed and hypotheses.

python benchmarks/runtimes.py BUNDLE EXPORT --data SPEC

Each file has its own process, and all take turns. Speed is in sentences per second, the median of
the rounds, and relative to Keras. "Same" counts the sentences whose hypotheses all equal Keras's.
"""

import statistics
from functools import partial
from pathlib import Path

import sacrebleu
from harness import (
    EngineSpec,
    arguments_parser,
    processor,
    ratio_to_best,
    report,
    seconds_of,
    started,
    take_turns,
)

from tfk_transformer import datasets

KERAS = "Keras"
SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam 4, 4 best": {"beam_size": 4, "n_best": 4},
    "drawn": {"beam_size": 2, "n_best": 2, "temperature": 0.8, "seed": 11},
}


def main() -> None:
    """Measure in rounds, and print one table."""
    parser = arguments_parser(__doc__)
    add = parser.add_argument
    add("bundle", type=Path)
    add("export", type=Path)
    add("--data", required=True, help="its split 'test' is translated")
    add("--rounds", type=int, default=3)
    add("--threads", type=int, default=2)
    options = parser.parse_args()
    pairs = list(datasets.load(options.data).pairs("test"))
    texts, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    files = [options.export / "saved_model", *sorted(options.export.glob("translate*.onnx"))]
    models = {KERAS: options.bundle} | {path.name: path for path in files if path.exists()}
    specs = [
        EngineSpec(name, "engines.any_model", (str(path),), options.threads)
        for name, path in models.items()
    ]
    table = [["search", "model", "sentences/s", "× Keras", "same", "scores apart", "BLEU"]]
    with started(specs) as engines:
        for search, settings in SEARCHES.items():
            runs = {
                engine.spec.name: partial(engine.ask, texts=texts, **settings) for engine in engines
            }
            answers = take_turns(runs, options.rounds, warm_up=True)
            seconds = seconds_of(answers)
            expected = answers[KERAS][0].result
            for name, given in answers.items():
                same, apart = compared(given[0].result, expected)
                best = [hypotheses[0][0] for hypotheses in given[0].result]
                table.append(
                    [
                        search,
                        name,
                        f"{len(texts) / statistics.median(seconds[name]):.1f}",
                        f"{ratio_to_best(seconds, name, [KERAS]):.2f}",
                        f"{same} of {len(texts)}",
                        f"{apart:.1e}",
                        f"{sacrebleu.corpus_bleu(best, [references]).score:.2f}",
                    ]
                )
    conditions = [
        f"{options.data}, {len(texts)} sentences, median of {options.rounds} interleaved rounds.",
        f"Threads: {options.threads}. Processor: {processor()}.",
    ]
    report(conditions, [table], options.markdown)


def compared(found: list, expected: list) -> tuple[int, float]:
    """Return how many sentences have the same texts, and the largest difference of their scores."""
    same = [
        (a, b)
        for a, b in zip(found, expected, strict=True)
        if [text for text, _ in a] == [text for text, _ in b]
    ]
    apart = (abs(x[1] - y[1]) for a, b in same for x, y in zip(a, b, strict=True))
    return len(same), max(apart, default=0.0)


if __name__ == "__main__":
    main()
