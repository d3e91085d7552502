"""Learning-rate schedules."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="tfk_transformer")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Rise linearly to a peak, then fall with the inverse square root of the step.

    The paper's schedule ("Attention Is All You Need", equation 3) is the one whose peak is
    (model_dim * warmup_steps) ** -0.5; `InverseSquareRoot.paper` gives it.

    Args:
        peak: the highest learning rate, reached at step `warmup_steps`.
        warmup_steps: steps of the linear rise, at least 1.

    Raises:
        ValueError: if `peak` is not positive or `warmup_steps` is below 1.
    """

    def __init__(self, peak, warmup_steps=4000):
        super().__init__()
        if peak <= 0:
            raise ValueError(f"peak: expected a positive learning rate, got {peak}.")
        if warmup_steps < 1:
            raise ValueError(f"warmup_steps: expected at least 1, got {warmup_steps}.")
        self.peak = peak
        self.warmup_steps = warmup_steps

    @classmethod
    def paper(cls, model_dim, warmup_steps=4000):
        """Return model_dim ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)."""
        return cls((model_dim * warmup_steps) ** -0.5, warmup_steps)

    def __call__(self, step):
        """Return the learning rate of a step; Keras counts from 0, the formula from 1."""
        step = ops.cast(step, "float32") + 1.0
        return self.peak * ops.minimum(step / self.warmup_steps, ops.sqrt(self.warmup_steps / step))

    def get_config(self):
        """Return what the constructor needs to make the same object again."""
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}
