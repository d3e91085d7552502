"""Write the files of a version: a bundle, a `.keras` file, a data cache, an unfinished training run and an ONNX file.

The files beside this script were written by 0.1.0.dev0 at 83ad590, before its modules moved into folders. To write those of another
version, run this script with it in an empty folder.
"""

import json
import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np

from tfk_transformer import (
    Adam,
    InverseSquareRoot,
    LabelSmoothedCrossentropy,
    Perplexity,
    Recipe,
    TokenAccuracy,
    TokenBatches,
    Transformer,
    Translator,
    datasets,
    train,
)
from tfk_transformer.datasets.numbers import spell

SIZES = {"model_dim": 16, "ff_dim": 24, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
TEXTS = ["seven", "forty-two", "ninety-nine"]
DATA = "files:en.txt,de.txt"


class Interrupt(keras.callbacks.Callback):
    """Break off after the second epoch."""

    def on_epoch_end(self, epoch, logs=None):
        """Raise an error."""
        if epoch == 1:
            raise OSError("interrupted on purpose")


def recipe(epochs: int) -> Recipe:
    """Return the recipe of every training here."""
    return Recipe(
        data=DATA,
        validation_data=DATA,
        options=SIZES,
        preset="tiny",
        vocab_size=60,
        max_length=24,
        batch_tokens=256,
        learning_rate=3e-3,
        warmup_steps=10,
        epochs=epochs,
    )


def save_keras_file(translator: Translator) -> None:
    """Fit and save a model of the same configuration, compiled, with what it predicts."""
    model = Transformer(translator.model.config)
    model.compile(Adam(InverseSquareRoot(1e-3, 10)), LabelSmoothedCrossentropy(0.1), metrics=[TokenAccuracy(), Perplexity()])
    tokenizer = translator.source_tokenizer
    model.fit(TokenBatches(datasets.load(DATA), "train", tokenizer, tokenizer, 256, 24).dataset(), epochs=1, verbose=0)
    random = np.random.default_rng(0)
    inputs = {"source": random.integers(4, 50, (3, 7)), "target": random.integers(4, 50, (3, 5))}
    np.savez("logits.npz", **inputs, logits=np.asarray(model(inputs)))
    model.save("model.keras")


def main() -> None:
    """Write everything into the working directory; `translate.onnx` is the export of `bundle`."""
    for language in ("en", "de"):
        Path(f"{language}.txt").write_text("".join(f"{spell(n, language)}\n" for n in range(100)), encoding="utf-8")
    translator = train(recipe(epochs=4), "bundle", cache="cache")
    found = translator.translate(TEXTS, beam_size=4)
    Path("translations.json").write_text(json.dumps([[t.source, t.text, t.score] for t in found], indent=1) + "\n")
    try:
        train(recipe(epochs=3), "unfinished", callbacks=[Interrupt()])
    except OSError as error:
        print(error)
    save_keras_file(translator)


if __name__ == "__main__":
    main()
