"""Train the preset of each document of docs/seeds.md on number words, export it, and compare the
results.

python benchmarks/presets.py OUT [--epochs N] [--preset NAME …]
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tfk_transformer import datasets
from tfk_transformer.runtime_environment import load_tensorflow

RECIPE = Path(__file__).parents[1] / "recipes" / "numbers.toml"
# What makes a document's model small enough for two cores; its kind of attention, norm, positions
# and output stay.
SIZES = {
    "model_dim": 128,
    "num_heads": 4,
    "key_dim": 32,
    "value_dim": 32,
    "ff_dim": 512,
    "encoder_layers": 2,
    "decoder_layers": 2,
}
NO_DROPOUT = {"attention_dropout": 0.0, "attention_output_dropout": 0.0, "ff_dropout": 0.0}
WIDE_HEADS = {"from_zero": {"num_heads": 2, "key_dim": 128, "value_dim": 128}}
PRESETS = (
    "yet_another_explanation",
    "from_zero",
    "step_by_step",
    "transformer_details",
    "from_scratch_pytorch",
)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="new folder for bundles and exports")
    parser.add_argument("--epochs", type=int, help="by default as many as the recipe has")
    parser.add_argument("--preset", action="append", choices=PRESETS)
    options = parser.parse_args()
    load_tensorflow()
    from tfk_transformer.training.recipe import Recipe

    recipe = Recipe.read(RECIPE)
    if options.epochs:
        recipe = recipe.replace(epochs=options.epochs)
    pairs = list(datasets.load(recipe.data).pairs("test"))
    table = Table("preset", "parameters", "training", "Keras", "SavedModel", "ONNX", ".keras")
    for preset in options.preset or PRESETS:
        table.add_row(preset, *measure(recipe, preset, options.out / preset, pairs))
    Console(width=120).print(table)


def measure(recipe, preset: str, out: Path, pairs: list) -> tuple[str, ...]:
    """Return a row of the table; `export` fails unless SavedModel and ONNX give the Keras model's
    ids.
    """
    from tfk_transformer.evaluation import evaluate
    from tfk_transformer.export.exporting import export
    from tfk_transformer.export.runtime.opening import load
    from tfk_transformer.training.trainer import train

    model = {**SIZES, **NO_DROPOUT, **WIDE_HEADS.get(preset, {})}
    started = time.perf_counter()
    translator = train(recipe.replace(preset=preset, options=model, dropout=0.0), out / "bundle")
    seconds = time.perf_counter() - started
    export(translator, out / "export")
    matches = [
        evaluate(load(path), pairs, beam_size=1)[0].exact_match
        for path in (
            out / "bundle",
            out / "export" / "saved_model",
            out / "export" / "translate.onnx",
        )
    ]
    return (
        f"{translator.model.count_params():,}",
        f"{seconds:.0f} s",
        *(f"{match:.1f} %" for match in matches),
        "the same" if round_trips(translator) else "DIFFERS",
    )


def round_trips(translator) -> bool:
    """Tell whether the model saved as .keras and loaded again gives the same output."""
    import keras

    inputs = {"source": np.array([[9, 8, 7, 2, 0]]), "target": np.array([[1, 5, 6]])}
    with tempfile.TemporaryDirectory() as folder:
        translator.model.save(Path(folder) / "model.keras")
        loaded = keras.saving.load_model(Path(folder) / "model.keras")
    return np.array_equal(loaded(inputs), translator.model(inputs))


if __name__ == "__main__":
    main()
