"""Several devices under TensorFlow train as one does. Two logical CPU devices replace GPUs."""

import json
import sys

import numpy as np
import pytest
from forked_programs import run_program
from number_files import write_number_files
from run_wide import made_once

TRAINING = """
import json, sys
import tensorflow as tf
cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import numpy as np
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.trainer import train
from tfk_transformer.training.distribution import gather
from pathlib import Path

folder, data, *validation_data = Path(sys.argv[1]), *sys.argv[2:]
recipe = Recipe(
    data=data, preset="tiny", tokenizer="char", vocab_size=40, max_length=48, batch_tokens=530,
    epochs=4, dropout=0.0, learning_rate=1e-2, warmup_steps=4, clip_norm=0.1,
    validation_data=validation_data[0] if validation_data else None, average=2,
    options={
        "encoder_layers": 1, "decoder_layers": 1, "model_dim": 8, "ff_dim": 12, "num_heads": 2
    },
)
weights = []
for devices in (1, None):
    out = folder / f"on {devices}"
    fitted = train(recipe, out, devices=devices, say=lambda line: None)
    weights += fitted.model.get_weights()
np.savez(folder / "weights", *weights)
try:
    gather(3)
except ValueError as error:
    print(error)
"""
FITTING = """
import tensorflow as tf
cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import numpy as np
from tfk_transformer import Transformer, TransformerConfig
from tfk_transformer.losses import LabelSmoothedCrossentropy
sizes = {
    "encoder_layers": 1, "decoder_layers": 1, "model_dim": 8, "ff_dim": 12, "num_heads": 2
}
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = Transformer(TransformerConfig(source_vocab_size=9, target_vocab_size=9, **sizes))
    model.compile("sgd", LabelSmoothedCrossentropy(), jit_compile=False)
ids, floats = np.ones((4, 3), "int32"), np.ones((4, 3), "float32")
for source in ids, floats:
    data = ({"source": source, "target": ids}, 2 * ids)
    batches = tf.data.Dataset.from_tensor_slices(data).batch(4)
    try:
        print(len(model.fit(batches, verbose=0, shuffle=False).history["loss"]))
    except ValueError as error:
        print(error)
"""


# The evaluation is also traced, for one device and for two.
@pytest.fixture(
    scope="module",
    params=["trained", pytest.param("evaluated", marks=pytest.mark.long)],
)
def trained(request):
    """A folder with the weights and bundles of a training on one device, and on two; and the output
    of the program.
    """
    evaluates = request.param == "evaluated"
    folder = made_once(f"mirrored/{request.param}", lambda path: train(path, evaluates))
    return folder, (folder / "output.txt").read_text()


def train(folder, evaluates):
    folder.mkdir()
    data = [write_number_files(folder, range(60))] * (1 + evaluates)
    done = run_program([sys.executable, "-c", TRAINING, str(folder), *data])
    assert done.returncode == 0, done.stderr[-2000:]
    (folder / "output.txt").write_text(done.stdout)


def test_devices_give_same_weights(trained):
    """The loss is the mean over the tokens of the whole batch, and the gradients of all devices are
    clipped together.
    """
    with np.load(trained[0] / "weights.npz") as arrays:
        weights = [arrays[name] for name in arrays.files]
    one, two = weights[: len(weights) // 2], weights[len(weights) // 2 :]
    for first, second in zip(one, two, strict=True):
        np.testing.assert_allclose(second, first, atol=3e-5)


def test_devices_give_same_losses(trained):
    histories = [
        json.loads((trained[0] / f"on {devices}" / "history.json").read_text())
        for devices in (1, None)
    ]
    assert list(histories[0]) == list(histories[1])
    for name in {"loss", "val_loss", "accuracy", "perplexity"} & histories[0].keys():
        np.testing.assert_allclose(histories[1][name], histories[0][name], rtol=1e-4)
    assert histories[1]["loss"][-1] < 0.9 * histories[1]["loss"][0]


def test_too_many_devices_are_refused(trained):
    assert trained[1] == "devices: expected from 1 to 2, as there are 2 of kind cpu, got 3.\n"


@pytest.mark.long  # traces a step on two devices
def test_float_ids_are_refused():
    """Keras builds the model with the mean of the devices' ids, which are floats, and only that is
    let pass.
    """
    done = run_program([sys.executable, "-c", FITTING])
    assert done.returncode == 0, done.stderr[-2000:]
    of_ids, of_floats = done.stdout.splitlines()
    assert of_ids == "1"
    assert of_floats == (
        "source: expected integer ids, got float32; convert them, for instance with "
        "ids.astype('int32')."
    )
