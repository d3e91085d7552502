"""The precision of training."""

from pathlib import Path

import keras

from tfk_transformer.runtime_environment import instructions

AUTO = "auto"
FIRST_GPUS = 8  # compute capability of the first NVIDIA GPUs that multiply in bfloat16
# Instructions of x86-64. Without them, a step in bfloat16 takes 2.5 times as long as in float32 if
# oneDNN emulates them (AVX-512), and slightly longer if Eigen converts each number
# (docs/training.md).
MULTIPLY_BFLOAT16 = {"avx512_bf16", "amx_bf16"}


def dtype_policy(dtype: str) -> str:
    """Return the name of Keras's dtype policy for the `dtype` of a recipe.

    "auto" becomes the faster policy on this machine.
    """
    if dtype != AUTO:
        return dtype
    return "mixed_bfloat16" if multiplies_bfloat16() else "float32"


def precision_line(dtype: str) -> str | None:
    """Return a note to the user about the `dtype` of a recipe on this machine, if any."""
    if dtype == AUTO:
        return f"precision: {dtype_policy(dtype)}"
    if dtype == "mixed_bfloat16" and not multiplies_bfloat16():
        return (
            "note: mixed_bfloat16 is slower than float32 on this machine; --dtype auto chooses "
            "what is faster"
        )
    return None


def multiplies_bfloat16(root: Path = Path("/")) -> bool:
    """Return whether bfloat16 is faster than float32 on the first device of the backend.

    `root` is the folder that contains `proc`.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        device = jax.devices()[0]  # on a CPU, XLA multiplies in float32 in any case
        return device.platform == "tpu" or (
            device.platform == "gpu" and _major(device.compute_capability) >= FIRST_GPUS
        )
    if backend == "torch":
        import torch

        if torch.cuda.is_available():
            return torch.cuda.is_bf16_supported(including_emulation=False)
    if backend == "tensorflow":
        import tensorflow as tf

        if gpus := tf.config.list_physical_devices("GPU"):
            major, _ = tf.config.experimental.get_device_details(gpus[0]).get(
                "compute_capability", (0, 0)
            )
            return major >= FIRST_GPUS
    return not MULTIPLY_BFLOAT16.isdisjoint(instructions(root))


def _major(capability: str) -> int:
    """Return the major version of a compute capability, 9 for "9.0"; 0 if it is not NVIDIA's."""
    major = capability.split(".")[0]
    return int(major) if major.isdigit() else 0
