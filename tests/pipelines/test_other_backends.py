"""Batches and translators under the backends that cannot search."""

import importlib.util
import os
import subprocess
import sys

import pytest
from xla_flags import FAST_COMPILATION

PROGRAM = """
import sys
import keras
import numpy as np
import tfk_transformer as tfk

pairs = [(a, b) for a in ("eins", "zwei", "drei") for b in ("one", "two", "three")] * 3
tokenizer = tfk.SubwordTokenizer.train((text for pair in pairs for text in pair), vocab_size=24)
sizes = {"model_dim": 8, "num_heads": 2, "ff_dim": 11, "max_length": 13, "dropout": 0.0}
layers = {"encoder_layers": 1, "decoder_layers": 1}
vocabularies = dict.fromkeys(("source_vocab_size", "target_vocab_size"), tokenizer.vocab_size)
model = tfk.Transformer(tfk.TransformerConfig(**sizes, **layers, **vocabularies))
model.compile("adam", tfk.losses.LabelSmoothedCrossentropy(0.0))


def batches(**options):
    return tfk.TokenBatches(
        pairs, "train", tokenizer, tokenizer, batch_tokens=300, max_length=13, **options
    )


training, epochs = batches(shuffle=True), []
assert training.few_shapes == (keras.backend.backend() == "jax")  # XLA compiles each shape
read = training.batches
training.batches = lambda epoch, first=0: epochs.append(epoch) or read(epoch, first)
backup = keras.callbacks.BackupAndRestore(sys.argv[1] + "/backup", delete_checkpoint=False)
history = model.fit(training, validation_data=batches(), epochs=2, verbose=0, callbacks=[backup])
losses = history.history["val_loss"]
assert losses[1] < losses[0], losses
np.testing.assert_allclose(model.evaluate(batches(), verbose=0), losses[1], rtol=1e-5)
model.fit(training, epochs=4, verbose=0, callbacks=[backup])
assert epochs[1:] == [0, 1, 2, 3], epochs  # Keras first reads a batch to determine shapes

translator = tfk.Translator(model, tokenizer, probes=["eins"])
translator.save(sys.argv[1] + "/bundle")
loaded = tfk.load(sys.argv[1] + "/bundle")
for run in (
    lambda: loaded.translate(["eins"]),
    lambda: loaded.score(["eins"], ["one"]),
    lambda: tfk.export(loaded, sys.argv[1] + "/files"),
):
    try:
        run()
    except ValueError as error:
        print(error)
"""


@pytest.mark.long  # 20 processor seconds: other processes import a backend and compile
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_batches_train_and_search_is_refused(backend, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "KERAS_BACKEND": backend, "XLA_FLAGS": FAST_COMPILATION},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    line = (
        f"backend: expected tensorflow, got {backend}; search and export require the TensorFlow "
        "backend: save the bundle, and load it with the environment variable "
        "KERAS_BACKEND=tensorflow."
    )
    assert done.stdout.splitlines() == [line] * 3
    assert not (tmp_path / "files").exists()
