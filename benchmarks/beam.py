"""Translation with Apache Beam in 1 and 2 worker processes of this machine, and with
`OnnxTranslator` without Beam.

.venv-beam/bin/python benchmarks/beam.py [--model translate.onnx] [--input FILE] [--texts 20000]
[--times 3]

Every run is a process of its own. The runs take turns, and the medians are printed: texts a second,
and texts a processor-second, in which the processors of all workers count. Without --model, the
model is the small one of the tests.
"""

import itertools
import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

from harness import arguments_parser, ratio_to_best, report, run_command, seconds_of, take_turns

SAVED = Path(__file__).parents[1] / "tests" / "saved_files"
ALONE = """
import json, sys
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
texts = [json.loads(line)["text"] for line in open(sys.argv[2], encoding="utf-8")]
OnnxTranslator(sys.argv[1], threads=1).translate(texts, beam_size=int(sys.argv[3]))
"""
ONE_WORKER = "Beam, 1 worker"
WORKERS = {
    ONE_WORKER: ["1"],
    "Beam, 2 workers": ["2"],
    "Beam, 2 workers, one model": ["2", "--share-model"],
}


def main() -> None:
    """Measure and print a table."""
    parser = arguments_parser(__doc__)
    add = parser.add_argument
    add("--model", type=Path, default=SAVED / "translate.onnx")
    add("--input", type=Path, default=SAVED / "en.txt", help="a file with one text per line")
    add("--texts", type=int, default=20_000)
    add("--times", type=int, default=3)
    add("--beam-size", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.jsonl"
        write_texts(texts, options.input, options.texts)
        answers = take_turns(commands(options, texts), options.times)
    seconds, used = seconds_of(answers), seconds_of(answers, "processor_seconds")
    heading = ["run", "seconds", "texts/s", "ratio to 1 worker", "processor-seconds"]
    table = [[*heading, "texts/processor-second"]]
    for name in answers:
        clock, processors = statistics.median(seconds[name]), statistics.median(used[name])
        table.append(
            [
                name,
                f"{clock:.1f}",
                f"{options.texts / clock:,.0f}",
                f"{ratio_to_best(seconds, name, [ONE_WORKER]):.2f}",
                f"{processors:.1f}",
                f"{options.texts / processors:,.0f}",
            ]
        )
    report([f"{options.texts:,} texts, median of {options.times}."], [table], options.markdown)


def commands(options, texts: Path) -> dict[str, partial]:
    """Return the commands to compare, by name; each run writes to a new folder."""
    numbers = itertools.count()
    beam = [sys.executable, "-m", "tfk_transformer.beam", "--model", options.model]
    beam += ["--input", texts, "--beam-size", options.beam_size]
    beam += ["--direct_running_mode", "multi_processing", "--direct_num_workers"]

    def run_beam(workers):
        output = texts.with_name(f"out-{next(numbers)}")
        return run_command([*beam, *workers, "--output", output])

    alone = [sys.executable, "-c", ALONE, options.model, texts, options.beam_size]
    runs = {name: partial(run_beam, workers) for name, workers in WORKERS.items()}
    return {**runs, "OnnxTranslator, 1 thread": partial(run_command, alone)}


def write_texts(path: Path, source: Path, count: int) -> None:
    """Write the lines of a file as JSON lines, again from the beginning until there are enough."""
    lines = source.read_text(encoding="utf-8").splitlines()
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(itertools.islice(itertools.cycle(lines), count)):
            print(json.dumps({"id": number, "text": text}, ensure_ascii=False), file=file)


if __name__ == "__main__":
    main()
