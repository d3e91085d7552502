"""Train the preset of each document of docs/seeds.md on number words, export it, and compare the results.

python benchmarks/presets.py OUT [--epochs 8] [--preset NAME …]
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

DATA = "numbers:en-de"
# What makes a document's model small enough for two cores; its kind of attention, norm, positions and output stay.
SIZES = {"model_dim": 128, "num_heads": 4, "key_dim": 32, "value_dim": 32, "ff_dim": 512, "encoder_layers": 2, "decoder_layers": 2}
NO_DROPOUT = {"attention_dropout": 0.0, "attention_output_dropout": 0.0, "ff_dropout": 0.0}
WIDE_HEADS = {"from_zero": {"num_heads": 2, "key_dim": 128, "value_dim": 128}}
PRESETS = ("yet_another_explanation", "from_zero", "step_by_step", "transformer_details", "from_scratch_pytorch")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="new folder for bundles and exports")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--preset", action="append", choices=PRESETS)
    options = parser.parse_args()
    load_tensorflow()
    pairs = list(datasets.load(DATA).pairs("test"))
    table = Table("preset", "parameters", "training", "Keras", "SavedModel", "ONNX", ".keras")
    for preset in options.preset or PRESETS:
        table.add_row(preset, *measure(preset, options.out / preset, options.epochs, pairs))
    Console(width=120).print(table)


def measure(preset: str, out: Path, epochs: int, pairs: list) -> tuple[str, ...]:
    """Return a row of the table; `export` fails unless SavedModel and ONNX give the Keras model's ids."""
    from tfk_transformer.evaluation import evaluate
    from tfk_transformer.export.exporting import export
    from tfk_transformer.export.runtime.opening import open_translator
    from tfk_transformer.training.trainer import Recipe, train

    tuned = {"vocab_size": 400, "max_length": 64, "learning_rate": 2e-3, "warmup_steps": 400, "label_smoothing": 0.0, "dropout": 0.0}
    model = {**SIZES, **NO_DROPOUT, **WIDE_HEADS.get(preset, {})}
    started = time.perf_counter()
    translator = train(Recipe(data=DATA, preset=preset, options=model, epochs=epochs, **tuned), out / "bundle")
    seconds = time.perf_counter() - started
    export(translator, out / "export")
    matches = [
        evaluate(open_translator(path), pairs, beam_size=1)[0].exact_match
        for path in (out / "bundle", out / "export" / "saved_model", out / "export" / "translate.onnx")
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
