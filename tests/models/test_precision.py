"""`dtype = "auto"` computes in bfloat16 where that is faster, and a training run can move to a
machine where it is not.
"""

import os
import signal
import sys

import keras
import pytest
from forked_programs import run_program

from tfk_transformer.models import precision
from tfk_transformer.models.precision import dtype_policy, multiplies_bfloat16, precision_line
from tfk_transformer.runtime_environment import instructions
from tfk_transformer.training.trainer import train

CASCADE_LAKE = "fma avx2 avx512f avx512bw avx512_vnni"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Let this machine have the instructions of another one."""

    def become(flags):
        (tmp_path / "proc").mkdir(exist_ok=True)
        (tmp_path / "proc" / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n")
        monkeypatch.setattr(precision, "instructions", lambda root: instructions(tmp_path))

    return become


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (f"{CASCADE_LAKE} avx512_bf16 amx_bf16 amx_tile", "mixed_bfloat16"),
        (f"{CASCADE_LAKE} avx512_bf16", "mixed_bfloat16"),
        (CASCADE_LAKE, "float32"),
        ("fma avx2", "float32"),
    ],
)
def test_auto_follows_the_processor(machine, flags, expected):
    machine(flags)
    assert dtype_policy("auto") == expected
    assert precision_line("auto") == f"precision: {expected}"
    slow = expected == "float32"
    assert bool(precision_line("mixed_bfloat16")) == slow
    assert precision_line("float32") is precision_line("mixed_float16") is None
    assert {dtype_policy(name) for name in ("float32", "mixed_float16")} == {
        "float32",
        "mixed_float16",
    }


def test_unknown_system_uses_float32(tmp_path):
    assert not multiplies_bfloat16(tmp_path)


@pytest.mark.parametrize(
    "backend",
    ["tensorflow", pytest.param("torch", marks=pytest.mark.long), "jax"],  # imports PyTorch
)
def test_auto_for_each_backend(backend):
    """XLA, which JAX uses, multiplies in float32 on every processor."""
    pytest.importorskip(backend)
    code = "from tfk_transformer.models.precision import dtype_policy\nprint(dtype_policy('auto'))"
    environment = {**os.environ, "KERAS_BACKEND": backend}
    if backend == "tensorflow" and "KERAS_BACKEND" not in os.environ:
        del environment["KERAS_BACKEND"]  # it is what Keras takes; the program can be a fork then
    done = run_program([sys.executable, "-c", code], env=environment)
    assert done.returncode == 0, done.stderr
    has = not {"avx512_bf16", "amx_bf16"}.isdisjoint(instructions())
    assert done.stdout == ("mixed_bfloat16\n" if has and backend != "jax" else "float32\n")


@pytest.mark.parametrize(
    ("capability", "major"), [("8.0", 8), ("12.0", 12), ("7.5", 7), ("gfx90a", 0)]
)
def test_gpu_capability_is_parsed(capability, major):
    assert precision._major(capability) == major


# Two trainings, with a traced step each.
@pytest.mark.long
def test_training_can_change_machines(machine, recipe, tmp_path):
    policies = []

    class Interrupts(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            policies.append(self.model.dtype_policy.name)
            if epoch == 2 and len(policies) == 3:
                signal.raise_signal(signal.SIGINT)

    lines = []
    sizes = {"model_dim": 32, "ff_dim": 32, "encoder_layers": 1, "decoder_layers": 1}
    short = recipe.replace(
        dtype="auto", epochs=4, epoch_steps=8, options=sizes, validation_data=None
    )
    out = tmp_path / "bundle"
    machine(f"{CASCADE_LAKE} avx512_bf16")
    with pytest.raises(KeyboardInterrupt):
        train(short, out, callbacks=[Interrupts()], say=lines.append)
    machine("fma avx2")
    train(short, out, resume=True, callbacks=[Interrupts()], say=lines.append)
    assert policies == ["mixed_bfloat16"] * 3 + ["float32"] * 2
    assert [line for line in lines if line.startswith("precision")] == [
        "precision: mixed_bfloat16",
        "precision: float32",
    ]
    assert 'dtype = "auto"' in (out / "recipe.toml").read_text()
    losses = [
        float(line.split("loss ")[1].split(",")[0]) for line in lines if line.startswith("epoch ")
    ]
    assert len(losses) == 4
    assert losses == sorted(losses, reverse=True)
