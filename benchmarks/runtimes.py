"""Compare the speed of one model as Keras, SavedModel and ONNX on the same sentences, relative to
Keras.

python benchmarks/runtimes.py BUNDLE EXPORT --data SPEC [--beam-size N] [--rounds N]

Each measurement has its own process, one after the other, since two engines in one process slow
each other down. Figures are medians.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table


def measure(model: Path, options) -> dict:
    """Evaluate a model in a fresh process."""
    command = [
        sys.executable,
        "-m",
        "tfk_transformer",
        "evaluate",
        model,
        "--data",
        options.data,
        "--json",
        "--beam-size",
        str(options.beam_size),
    ]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure in rounds, and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("export", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    models = {
        "Keras": options.bundle,
        "SavedModel": options.export / "saved_model",
        "ONNX": options.export / "translate.onnx",
    }
    rounds = [
        {name: measure(path, options) for name, path in models.items()}
        for _ in range(options.rounds)
    ]
    table = Table("", "BLEU", "sentences/s", "× Keras")
    for name in models:
        speeds = [found[name]["sentences_per_second"] for found in rounds]
        ratio = statistics.median(
            found[name]["sentences_per_second"] / found["Keras"]["sentences_per_second"]
            for found in rounds
        )
        table.add_row(
            name,
            f"{rounds[0][name]['bleu']:.2f}",
            f"{statistics.median(speeds):.1f}",
            f"{ratio:.2f}",
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{options.data}, beam {options.beam_size}, median of {options.rounds}")
    console.print(table)


if __name__ == "__main__":
    main()
