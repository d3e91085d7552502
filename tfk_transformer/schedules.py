"""Learning-rate schedules."""

from numbers import Real
from typing import Self

import keras
from keras import ops

from tfk_transformer.array_types import Tensor

__all__ = ["InverseSquareRoot"]


@keras.saving.register_keras_serializable(package="tfk_transformer")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Raise the learning rate linearly to a peak, then lower it with the inverse root of the step.

    The schedule of "Attention Is All You Need" (arXiv:1706.03762, equation 3) has the peak
    (model_dim * warmup_steps) ** -0.5; `InverseSquareRoot.paper` returns it.

    Args:
        peak: the highest learning rate, reached at step `warmup_steps`.
        warmup_steps: number of training steps of the linear rise, at least 1. Defaults to 4000.

    Raises:
        ValueError: if `peak` is not positive or `warmup_steps` is below 1.
    """

    def __init__(self, peak: float, warmup_steps: int = 4000) -> None:
        super().__init__()
        if not (_is_number(peak) and peak > 0):
            raise ValueError(f"peak: expected a positive learning rate, got {peak!r}.")
        if not (_is_number(warmup_steps) and warmup_steps >= 1):
            raise ValueError(f"warmup_steps: expected at least 1, got {warmup_steps!r}.")
        self.peak = peak
        self.warmup_steps = warmup_steps

    @classmethod
    def paper(cls, model_dim: int, warmup_steps: int = 4000) -> Self:
        """Return model_dim ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)."""
        return cls((model_dim * warmup_steps) ** -0.5, warmup_steps)

    def __call__(self, step: Tensor) -> Tensor:
        """Return the learning rate of a training step, a float32 scalar.

        Keras counts steps from 0, the formula from 1.
        """
        step = ops.cast(step, "float32") + 1.0
        return self.peak * ops.minimum(step / self.warmup_steps, ops.sqrt(self.warmup_steps / step))

    def get_config(self) -> dict[str, float]:
        """Return the arguments of the constructor."""
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


def _is_number(value: object) -> bool:
    return isinstance(value, Real)
