"""Lower training steps and forward passes for CUDA and TPU, and write what the lowered modules
contain as JSON.

KERAS_BACKEND=jax python tests/training/lowered_steps.py FILE mixed_bfloat16

No weight gets a value: models are made inside a trace, so even `big` takes little memory.
"""

import gc
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import keras

from tfk_transformer.config.presets import PRESETS
from tfk_transformer.training.compilation import compiled_model
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.recipe import Recipe

PLATFORMS = ("cuda", "tpu")
BATCH, SOURCE_LENGTH, TARGET_LENGTH, VOCAB_SIZE = 7, 11, 13, 32003
# One layer of each kind: a preset's layers are alike, and more of them hold the same operations.
LAYERS = {
    "encoder_decoder": {"encoder_layers": 1, "decoder_layers": 1},
    "decoder": {"decoder_layers": 1},
    "encoder": {"encoder_layers": 1},
}
CASES = [
    *((preset, "encoder_decoder") for preset in PRESETS),
    ("small", "decoder"),
    ("small", "encoder"),
]


def facts(dtype: str) -> dict[str, dict]:
    """Return what each lowered module contains, by preset, architecture and kind of step."""
    return {
        f"{preset} {architecture} {kind}": content
        for preset, architecture in CASES
        for kind, content in _of_model(preset, architecture, dtype).items()
    }


def _of_model(preset: str, architecture: str, dtype: str) -> dict[str, dict]:
    named = {"preset": preset, "architecture": architecture, "options": LAYERS[architecture]}
    recipe = Recipe(data="numbers:en-de", dtype=dtype, **named)
    ids = _ids(BATCH, SOURCE_LENGTH), _ids(BATCH, TARGET_LENGTH)
    data = {
        "encoder_decoder": ({"source": ids[0], "target": ids[1]}, ids[1]),
        "decoder": (ids[1], ids[1]),
        "encoder": (ids[0], _ids(BATCH)),
    }[architecture]
    model = _model(recipe, *data)
    variables = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([jax.ShapeDtypeStruct(v.shape, v.dtype) for v in some] for some in variables)
    model.make_train_function()

    def train(state, data):
        return model.train_function(state, iter([data]))  # as `fit` calls it

    def forward(state, data):
        return model.stateless_call(*state[:2], data[0], training=False)[0]

    step, passed = (_lower(function, state, data) for function in (train, forward))
    return {
        "train": {**_content(step), "keeps_state": _same(step, state)},
        "forward": _content(passed),
    }


def _model(recipe: Recipe, inputs, labels) -> keras.Model:
    """Return the model that `train` makes, whose variables have shapes only."""
    made = []
    tokenizer = SimpleNamespace(vocab_size=VOCAB_SIZE)

    def make(inputs, labels):
        model = compiled_model(recipe, (tokenizer, tokenizer), 100, Team())
        model.compute_metrics(inputs, labels, model(inputs))  # makes the variables of the metrics
        made.append(model)

    jax.eval_shape(make, inputs, labels)
    return made[0]


def _ids(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "int32")


def _lower(function, *arguments) -> jax.export.Exported:
    """Lower a function for all platforms, and take it through its serialized form."""
    exported = jax.export.export(jax.jit(function), platforms=PLATFORMS)(*arguments)
    return jax.export.deserialize(exported.serialize())


def _same(step: jax.export.Exported, state) -> bool:
    """Return whether the state after a training step has the shapes and types of the state
    before.
    """
    after = jax.tree.unflatten(step.out_tree, step.out_avals)[1]
    return jax.tree.map(_shape, after) == jax.tree.map(_shape, state)


def _shape(array) -> str:
    return f"{array.shape} {array.dtype}"


def _content(exported: jax.export.Exported) -> dict:
    text = exported.mlir_module()
    products = re.findall(r"stablehlo\.dot_general .*: \(tensor<(.*?)>, tensor<(.*?)>\)", text)
    return {
        "platforms": exported.platforms,
        "custom_calls": sorted(set(re.findall(r"custom_call @(\w+)", text))),
        "products": sorted(set(products)),
        "exponentials": sorted(set(re.findall(r"stablehlo\.exponential .*: tensor<(.*?)>", text))),
    }


def _refusal(function, *arguments) -> str:
    """Return the error of lowering something that a platform lacks."""
    try:
        _lower(function, *arguments)
    except NotImplementedError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    gc.disable()  # The collector takes a sixth of the time, and finds little.
    matrix = jax.ShapeDtypeStruct((3, 3), "float32")
    content = {
        "facts": facts(sys.argv[2]),
        "inverse": _content(_lower(jnp.linalg.inv, matrix)),
        "eigenvalues": _refusal(jnp.linalg.eigvals, matrix),
    }
    Path(sys.argv[1]).write_text(json.dumps(content))
