"""Translation with Apache Beam in 1 and 2 worker processes of this machine, and with
`OnnxTranslator` without Beam.

.venv-beam/bin/python benchmarks/beam.py [--model translate.onnx] [--input FILE] [--texts 20000]
[--times 3]

Every run is a process of its own. The runs take turns, and the medians are printed: texts a second,
and texts a processor-second, in which the processors of all workers count. Without --model, the
model is the small one of the tests.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SAVED = Path(__file__).parents[1] / "tests" / "saved_files"
WORKERS = ["--direct_running_mode", "multi_processing", "--direct_num_workers"]
ALONE = """
import json, sys
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
texts = [json.loads(line)["text"] for line in open(sys.argv[2], encoding="utf-8")]
OnnxTranslator(sys.argv[1], threads=int(sys.argv[3])).translate(texts, beam_size=int(sys.argv[4]))
"""


class Cost(NamedTuple):
    """What a run took."""

    seconds: float
    processor_seconds: float  # of the process and all processes that it started


def write_texts(path: Path, source: Path, count: int) -> None:
    """Write the lines of a file as JSON lines, again from the beginning until there are enough."""
    lines = source.read_text(encoding="utf-8").splitlines()
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(itertools.islice(itertools.cycle(lines), count)):
            print(json.dumps({"id": number, "text": text}, ensure_ascii=False), file=file)


def measured(command: list[str]) -> Cost:
    """Run a command and return what it took."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(errors.decode())
    return Cost(time.perf_counter() - begun, usage.ru_utime + usage.ru_stime)


def commands(given: argparse.Namespace, texts: Path, output: Path) -> dict[str, list[str]]:
    """Return the commands to compare, by name."""
    files = [
        "--model",
        str(given.model),
        "--input",
        str(texts),
        "--output",
        str(output),
        "--beam-size",
        str(given.beam_size),
    ]
    beam = [sys.executable, "-m", "tfk_transformer.beam", *files]
    alone = [sys.executable, "-c", ALONE, str(given.model), str(texts)]
    return {
        "Beam, 1 worker": [*beam, *WORKERS, "1"],
        "Beam, 2 workers": [*beam, *WORKERS, "2"],
        "Beam, 2 workers, one model": [*beam, *WORKERS, "2", "--share-model"],
        "OnnxTranslator, 1 thread": [*alone, "1", str(given.beam_size)],
    }


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=SAVED / "translate.onnx")
    parser.add_argument(
        "--input", type=Path, default=SAVED / "en.txt", help="a file with one text per line"
    )
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--beam-size", type=int, default=1)
    given = parser.parse_args()
    costs: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory() as name:
        texts = Path(name) / "texts.jsonl"
        write_texts(texts, given.input, given.texts)
        for time_ in range(given.times):
            for what, command in commands(given, texts, Path(name) / f"out-{time_}").items():
                if "Beam" in what:
                    command[command.index("--output") + 1] += what.replace(" ", "")
                costs.setdefault(what, []).append(measured(command))
    print(
        "| run | seconds | texts/s | ratio to 1 worker | processor-seconds | "
        "texts/processor-second |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for what, found in costs.items():
        seconds, used = (statistics.median(each[place] for each in found) for place in (0, 1))
        ratios = [
            first.seconds / each.seconds
            for first, each in zip(costs["Beam, 1 worker"], found, strict=True)
        ]
        rates = (
            f"{given.texts / seconds:,.0f} | {statistics.median(ratios):.2f} | {used:.1f} | "
            f"{given.texts / used:,.0f}"
        )
        print(f"| {what} | {seconds:.1f} | {rates} |")


if __name__ == "__main__":
    main()
