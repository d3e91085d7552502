"""Train recipes/numbers.toml from several seeds, and count the numbers that are translated exactly,
greedily.

python benchmarks/number_words.py [--seeds 5] [--recipe FILE]

Each training is the command that a user types, in a process of its own; its time includes the start
of TensorFlow.
"""

import random
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from harness import arguments_parser, processor, report, run_command

from tfk_transformer.datasets.numbers import LIMIT, numbers_by_split, spell
from tfk_transformer.datasets.pairs import Pair
from tfk_transformer.runtime_environment import load_tensorflow

RECIPE = Path(__file__).parents[1] / "recipes" / "numbers.toml"
# What people type, what no model is trained on, and numbers of which nearly all have six digits.
NUMBERS = {
    "0 to 99": range(100),
    "0 to 999": range(1_000),
    "test split": numbers_by_split()["test"],
    "drawn uniformly": random.Random(0).sample(range(LIMIT), 1_000),
}


def main() -> None:
    """Print a row for each seed."""
    parser = arguments_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="number of training runs (5)")
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    options = parser.parse_args()
    load_tensorflow()
    from tfk_transformer import Recipe, Translator

    recipe = Recipe.read(options.recipe)
    table = [["seed", "training", *NUMBERS]]
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            train = [sys.executable, "-m", "tfk_transformer", "train", options.recipe, "--quiet"]
            answer = run_command([*train, "--seed", seed, "--out", f"{folder}/bundle"])
            translator = Translator.load(f"{folder}/bundle")
        matches = [exact_match(translator, numbers) for numbers in NUMBERS.values()]
        table.append([str(seed), f"{answer.seconds:.0f} s", *matches])
        print(" ".join(table[-1]), flush=True)
    conditions = [f"{recipe.data}, {recipe.epochs} epochs. Processor: {processor()}."]
    report(conditions, [table], options.markdown)


def exact_match(translator, numbers: Iterable[int]) -> str:
    """Return the share of numbers that are translated exactly."""
    from tfk_transformer.evaluation import evaluate

    pairs = [Pair(spell(number, "en"), spell(number, "de"), str(number)) for number in numbers]
    found, _ = evaluate(translator, pairs, beam_size=1)
    return f"{found.exact_match:.1f} %"


if __name__ == "__main__":
    main()
