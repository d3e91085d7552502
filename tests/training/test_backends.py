"""`fit` under every backend: equal losses, and weights of rows, tokens and classes that count."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from backend_steps import CLASS_WEIGHT, STEPS, VOCAB_SIZE, batch
from run_wide import made_once
from xla_flags import FAST_COMPILATION

# Many steps, or PyTorch, which is imported in four seconds.
LONG = [("tensorflow", "all"), ("jax", "all"), ("torch", "all")]
PROGRAM = Path(__file__).with_name("backend_steps.py")
SMOOTHING = 0.1


def run_backend(name, steps):
    """Return what `backend_steps` computes with a backend: few or all steps; skip where the backend
    is missing.
    """
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")

    def write(path):
        flags = {"KERAS_BACKEND": name, "XLA_FLAGS": FAST_COMPILATION}
        environment = {**os.environ, **flags}
        command = [sys.executable, "-W", "ignore", PROGRAM, steps]
        output = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert output.returncode == 0, output.stderr
        path.write_text(output.stdout, encoding="utf-8")

    path = made_once(f"backend_steps_{name}_{steps}.json", write)
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(
    scope="module",
    params=[
        ("tensorflow", "few"),
        ("jax", "few"),
        *(pytest.param(each, marks=pytest.mark.long) for each in LONG),
    ],
    ids=" ".join,
)
def steps(request):
    """What a backend computes."""
    return run_backend(*request.param)


def test_losses_equal_tensorflow(steps):
    losses = run_backend("tensorflow", "few")["losses"]
    assert len(losses) == STEPS
    assert losses[-1] < losses[0] - 0.5
    np.testing.assert_allclose(steps["losses"], losses, rtol=1e-5)


def expected(name, outputs, logits):
    """Return the fitted and evaluated figures and the gradient of a step, in float64."""
    weighting, reduction, _ = name.split(", ")
    _, labels, weights = batch()
    mask = (labels != 0).astype("float64")
    sample = np.ones(labels.shape)
    if "rows" in weighting:
        sample = sample * weights["rows"].astype("float64")[:, None]
    if weighting == "tokens":
        sample = weights["tokens"].astype("float64")
    classes = np.ones(VOCAB_SIZE)
    if "classes" in weighting:
        classes[list(CLASS_WEIGHT)] = list(CLASS_WEIGHT.values())
    fitted, gradient = figures(labels, logits, mask, sample * classes[labels], reduction)
    evaluated, _ = figures(labels, logits, mask, sample, reduction)
    return fitted, evaluated, np.einsum("btd,btv->dv", outputs, gradient)


def figures(labels, logits, mask, weights, reduction):
    """Return loss and metrics by name, and the gradient of the loss with respect to the logits."""
    log_probs = logits - logits.max(-1, keepdims=True)
    log_probs -= np.log(np.exp(log_probs).sum(-1, keepdims=True))
    smoothed = (1 - SMOOTHING) * np.eye(VOCAB_SIZE)[labels] + SMOOTHING / VOCAB_SIZE
    losses = -(smoothed * log_probs).sum(-1)
    plain = -np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
    right = logits.argmax(-1) == labels
    weighted = weights * mask
    divisor = {
        "sum_over_batch_size": mask.sum(),
        "mean_with_sample_weight": weighted.sum(),
        "sum": 1.0,
    }[reduction]
    values = {
        "loss": (weighted * losses).sum() / divisor,
        "perplexity": np.exp((mask * plain).sum() / mask.sum()),
        "weighted_perplexity": np.exp((weighted * plain).sum() / weighted.sum()),
        "accuracy": (weighted * right).sum() / weighted.sum(),
    }
    return values, (np.exp(log_probs) - smoothed) * (weighted / divisor)[..., None]


def test_weights_count_as_in_float64(steps):
    """Loss, metrics and gradients of every way to weigh and to compute a step."""
    outputs, logits = (np.array(steps[key], "float64") for key in ("outputs", "logits"))
    largest = 0.0
    for name, computed in steps["weighted"].items():
        fitted, evaluated, gradient = expected(name, outputs, logits)
        assert computed["fitted"] == pytest.approx(fitted, rel=2e-5), name
        assert computed["evaluated"] == pytest.approx(evaluated, rel=2e-5), name
        difference = np.abs(computed["gradient"] - gradient).max() / np.abs(gradient).max()
        largest = max(largest, difference)
        assert difference < 1e-5, name
    print(f"largest relative difference of a gradient: {largest:.1e}")


def test_every_way_is_computed(steps):
    names = [name.split(", ") for name in steps["weighted"]]
    weightings = {weighting for weighting, *_ in names}
    few = {"tokens", "rows and classes"}
    assert weightings in (few, few | {"none", "rows", "classes"})
    ways = {way for *_, way in names}
    assert ways in ({"apart"}, {"apart", "joined", "towers", "joined towers"})
