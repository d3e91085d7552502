"""Run the whole workflow on built-in data: train, export, compare the files, and translate with
onnxruntime.
"""

import argparse
import os
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import tfk_transformer as tfk

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # as the commands do
RECIPE = Path(__file__).parents[1] / "recipes" / "numbers.toml"
console = Console(highlight=False, soft_wrap=True)
parser = argparse.ArgumentParser(description=__doc__)
folder = Path(time.strftime("runs/demo-%Y%m%d-%H%M%S"))
parser.add_argument("--out", type=Path, default=folder, help="new folder for the results")
parser.add_argument("--epochs", type=int, help="number of epochs; default: the recipe's")
options = parser.parse_args()
recipe = tfk.Recipe.read(RECIPE)
if options.epochs:
    recipe = recipe.replace(epochs=options.epochs)
console.rule(f"1. Train: {recipe.data}")
translator = tfk.train(recipe, options.out / "bundle", say=console.print)
console.rule("2. Export, and check that all files agree")
figures = tfk.export(translator, options.out / "export")
console.print(
    f"Keras, SavedModel and ONNX give the same ids for {figures['sentences']} sentences, "
    "greedy and beam 4."
)
console.rule("3. Translate unseen numbers with onnxruntime")
pairs = list(tfk.datasets.load(recipe.data).pairs("test"))
model = tfk.load(options.out / "export" / "translate.onnx")
for translation in model.translate([pair.source for pair in pairs[:4]]):
    console.print(f"{translation.source}\n  → {translation.text}")
console.rule(f"4. {len(pairs):,} unseen numbers, greedy")
table = Table("", "exact match", "size", "ms a sentence")
paths = {"Keras": "bundle", "SavedModel": "export/saved_model", "ONNX": "export/translate.onnx"}
for name, path in paths.items():
    found, _ = tfk.evaluate(tfk.load(options.out / path), pairs, beam_size=1)
    files = [options.out / path, *(options.out / path).rglob("*")]
    size = sum(file.stat().st_size for file in files if file.is_file())
    time_each = 1000 * found.seconds / found.sentences
    table.add_row(name, f"{found.exact_match:.1f} %", f"{size / 1e6:.1f} MB", f"{time_each:.2f}")
console.print(table)
file = options.out / "export" / "translate.onnx"
console.print(f"Try it: .venv/bin/tfk-transformer translate {file} 'forty-two'")
