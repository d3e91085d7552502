"""Train recipes/numbers.toml from several seeds, and count the numbers that are translated exactly,
greedily.

python benchmarks/number_words.py [--seeds 5] [--recipe FILE]

Each training is the command that a user types, in a process of its own; its time includes the start
of TensorFlow.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from engines.report import print_tables, processor

from tfk_transformer.datasets.numbers import LIMIT, numbers_by_split, spell
from tfk_transformer.datasets.pairs import Pair
from tfk_transformer.runtime_environment import load_tensorflow

RECIPE = Path(__file__).parents[1] / "recipes" / "numbers.toml"


def sets_of_numbers() -> dict[str, Iterable[int]]:
    """Return what is translated: what people type, what nobody trained on, and numbers of which
    nearly all have six digits.
    """
    return {
        "0 to 99": range(100),
        "0 to 999": range(1_000),
        "test split": numbers_by_split()["test"],
        "drawn uniformly": random.Random(0).sample(range(LIMIT), 1_000),
    }


def main(
    seeds: Annotated[int, typer.Option(min=1, help="number of training runs")] = 5,
    recipe: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="recipe file")] = RECIPE,
) -> None:
    """Print a row for each seed."""
    load_tensorflow()
    from tfk_transformer import Recipe, Translator

    values = Recipe.read(recipe)
    table = [["seed", "training", *sets_of_numbers()]]
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "tfk_transformer",
                "train",
                recipe,
                "--seed",
                str(seed),
                "--quiet",
            ]
            started = time.perf_counter()
            subprocess.run([*command, "--out", f"{folder}/bundle"], check=True)
            seconds = time.perf_counter() - started
            translator = Translator.load(f"{folder}/bundle")
        table.append(
            [
                str(seed),
                f"{seconds:.0f} s",
                *(exact_match(translator, numbers) for numbers in sets_of_numbers().values()),
            ]
        )
        print(" ".join(table[-1]), flush=True)
    print_tables([f"{values.data}, {values.epochs} epochs. Processor: {processor()}."], [table])


def exact_match(translator, numbers: Iterable[int]) -> str:
    """Return the share of numbers that are translated exactly."""
    from tfk_transformer.evaluation import evaluate

    pairs = [Pair(spell(number, "en"), spell(number, "de"), str(number)) for number in numbers]
    found, _ = evaluate(translator, pairs, beam_size=1)
    return f"{found.exact_match:.1f} %"


if __name__ == "__main__":
    typer.run(main)
