"""The JAX training step and the forward pass of every preset lower for CUDA and TPU, which needs
neither of them.

A lowered module is what XLA receives on such a device. The test shows that every operation has a
form there, and in which type the matrix products are computed. It does not show that XLA compiles
the module, nor how fast it is. Models have one layer of each kind: the layers of a preset are
alike.
"""

import importlib.util
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from run_wide import made_once

from tfk_transformer.config.presets import PRESETS

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("jax") is None,
        reason="JAX is not installed: pip install -e .[jax]",
    ),
    pytest.mark.long,  # lowers every step for two devices
]
SCRIPT = Path(__file__).parent / "lowered_steps.py"
MODELS = [*(f"{preset} encoder_decoder" for preset in PRESETS), "small decoder", "small encoder"]
STEPS = [f"{model} {kind}" for model in MODELS for kind in ("train", "forward")]
DTYPES = ["mixed_bfloat16", "float32"]
# Lengths in the script.
ATTENTIONS = {
    "encoder_decoder": ("11x11", "13x13", "13x11"),
    "decoder": ("13x13",),
    "encoder": ("11x11",),
}


@pytest.fixture(scope="module", params=DTYPES)
def dtype(request):
    return request.param


@pytest.fixture(scope="module")
def lowered(dtype):
    return json.loads(made_once(f"lowered/{dtype}.json", partial(lower, dtype)).read_text())


def lower(dtype, file):
    run = subprocess.run(
        [sys.executable, SCRIPT, file, dtype],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "jax"},
    )
    assert run.returncode == 0, run.stderr[-4000:]


def is_matrix(shape):
    """Whether a shape such as "77x128xf32" is no row or column: sums written as products with a
    vector stay in float32.
    """
    return "1" not in shape.split("x")[:-1]


def types(products):
    return {shape.split("x")[-1] for product in products for shape in product}


@pytest.mark.parametrize("step", STEPS)
def test_step_lowers_for_gpu_and_tpu(lowered, dtype, step):
    preset, architecture, kind = step.split()
    content = lowered["facts"][step]
    assert content["platforms"] == ["cuda", "tpu"]
    assert content["custom_calls"] == []  # such as LAPACK's on a CPU; a model needs none
    matrices = [product for product in content["products"] if all(map(is_matrix, product))]
    assert types(matrices) == {"bf16" if dtype == "mixed_bfloat16" else "f32"}
    assert content["keeps_state"] if kind == "train" else matrices == content["products"]
    heads = PRESETS[preset]["num_heads"]
    assert {f"7x{heads}x{lengths}xf32" for lengths in ATTENTIONS[architecture]} <= set(
        content["exponentials"]
    )
    assert types([content["exponentials"]]) == {"f32"}


def test_every_step_is_lowered(lowered):
    assert sorted(lowered["facts"]) == sorted(STEPS)


def test_unsupported_operation_is_seen(lowered):
    assert "not found for platforms ['tpu']" in lowered["eigenvalues"]
    assert "cusolver_getrf_ffi" in lowered["inverse"]["custom_calls"]
